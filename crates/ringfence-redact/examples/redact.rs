//! Measures the redactor and prints one line of JSON for each figure.
//! `cargo run --release -p ringfence-redact --example redact`

use ringfence_redact::{Forms, Personal, Redactor};
use serde_json::json;
use std::{
    fs,
    io::{self, Write},
};

const MEGABYTE: f64 = 1_000_000.0;
const TEXT_BYTES: usize = 32_000_000;
/// Size of a piece, as read from a pipe.
const PIECE_BYTES: usize = 64 * 1024;
const ROUNDS: usize = 5;

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Random numbers with the same sequence in every run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).map_or(0, |high| high % sides)
    }

    fn word(&mut self, len: usize) -> String {
        (0..len)
            .map(|_| char::from(BASE64[self.roll(BASE64.len())]))
            .collect()
    }

    fn secrets(&mut self, count: usize, lens: std::ops::Range<usize>) -> Vec<String> {
        (0..count)
            .map(|_| {
                let len = lens.start + self.roll(lens.len());
                self.word(len)
            })
            .collect()
    }

    /// Returns secrets of four lines and 259 bytes.
    fn keys(&mut self, count: usize) -> Vec<String> {
        let mut key = || [(); 4].map(|()| self.word(64)).join("\n");
        (0..count).map(|_| key()).collect()
    }

    fn log(&mut self) -> Vec<u8> {
        const WORDS: [&str; 12] = [
            "request",
            "GET",
            "/api/v1/items",
            "status=200",
            "user",
            "connected",
            "from",
            "cache",
            "miss",
            "retry",
            "timeout",
            "worker",
        ];
        let mut text = String::new();
        while text.len() < TEXT_BYTES {
            text += &format!(
                "2024-05-17T12:{:02}:{:02}.{:03}Z INFO ",
                self.roll(60),
                self.roll(60),
                self.roll(1000)
            );
            for _ in 0..5 {
                text += WORDS[self.roll(WORDS.len())];
                text.push(' ');
            }
            text += &format!("id={} took={}ms\n", self.roll(1_000_000), self.roll(500));
        }
        text.into_bytes()
    }

    fn lines(&mut self, width: usize, piece: impl Fn(&mut Self) -> String) -> Vec<u8> {
        let mut text = String::new();
        let mut line = 0;
        while text.len() < TEXT_BYTES {
            let piece = piece(self);
            line += piece.len();
            text += &piece;
            if line >= width {
                text.push('\n');
                line = 0;
            }
        }
        text.into_bytes()
    }
}

fn main() -> io::Result<()> {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    // first, while no other work affects the memory figures
    constructions(&mut dice)?;
    throughputs(&mut dice)
}

fn constructions(dice: &mut Dice) -> io::Result<()> {
    for count in [10, 100, 1000] {
        construction(
            &format!("{count} secrets of 40 bytes"),
            &dice.secrets(count, 40..41),
        )?;
    }
    construction("64 KiB in one", &dice.secrets(1, 65_536..65_537))?;
    construction("256 KiB in 4", &dice.secrets(4, 65_536..65_537))?;
    construction("256 KiB in 6,553 of 40 bytes", &dice.secrets(6_553, 40..41))?;
    construction("256 KiB in 65,536 of 4 bytes", &dice.secrets(65_536, 4..5))?;
    let controls: Vec<String> = dice.secrets(4, 65_536..65_537);
    let controls: Vec<String> = controls
        .iter()
        .map(|text| text.bytes().map(|byte| char::from(byte & 31)).collect())
        .collect();
    construction("256 KiB of control characters", &controls)?;
    construction("256 KiB in 1,012 of four lines", &dice.keys(1012))
}

fn throughputs(dice: &mut Dice) -> io::Result<()> {
    let secrets = dice.secrets(100, 20..41);
    let redactor = new(&secrets, Personal::Keep);
    let personal = new(&secrets, Personal::Remove);
    let log = dice.log();
    throughput("100 secrets, log lines", &redactor, &log)?;
    throughput(
        "100 secrets, base64 in one line",
        &redactor,
        &dice.lines(usize::MAX, |dice| dice.word(64)),
    )?;
    throughput(
        "100 secrets, base64 at 76 columns",
        &redactor,
        &dice.lines(76, |dice| dice.word(76)),
    )?;
    throughput(
        "100 secrets, hex",
        &redactor,
        &dice.lines(76, |dice| format!("{:08x}", dice.roll(1 << 31))),
    )?;
    throughput(
        "100 secrets, lines of 8",
        &redactor,
        &dice.lines(8, |dice| dice.word(7)),
    )?;
    throughput(
        "100 secrets, only line breaks",
        &redactor,
        &vec![b'\n'; TEXT_BYTES],
    )?;
    let of_secrets = |dice: &mut Dice| secrets[dice.roll(100)].clone() + " ";
    throughput(
        "100 secrets, nothing but secrets",
        &redactor,
        &dice.lines(80, of_secrets),
    )?;
    let almost = |dice: &mut Dice| secrets[dice.roll(100)][..19].to_owned() + " ";
    throughput(
        "100 secrets, all but their ends",
        &redactor,
        &dice.lines(80, almost),
    )?;
    throughput("100 secrets and personal, log lines", &personal, &log)?;
    let people = |_: &mut Dice| "alice@example.com, 415-555-2671 ".to_owned();
    throughput(
        "100 secrets and personal, full of people",
        &personal,
        &dice.lines(80, people),
    )?;
    throughput(
        "personal, signs",
        &new(&[], Personal::Remove),
        &dice.lines(80, |_| "a.b@".to_owned()),
    )?;
    worst_cases(dice, &log)
}

/// Secrets and texts that make the redactor slow.
fn worst_cases(dice: &mut Dice, log: &[u8]) -> io::Result<()> {
    let many = new(&dice.secrets(1000, 40..41), Personal::Keep);
    throughput("1,000 secrets, log lines", &many, log)?;
    let keys = new(&dice.keys(100), Personal::Keep);
    throughput("100 secrets of four lines, log lines", &keys, log)?;
    let alike = ["a".repeat(64 * 1024), "aaaa".to_owned(), "a".repeat(5000) + "b"];
    throughput(
        "64 KiB of a, text of a",
        &new(&alike, Personal::Keep),
        &vec![b'a'; TEXT_BYTES],
    )?;
    throughput(
        "64 KiB of a and b, text of a",
        &new(&alike[2..], Personal::Keep),
        &vec![b'a'; TEXT_BYTES],
    )
}

fn new(secrets: &[String], personal: Personal) -> Redactor {
    Redactor::new(secrets.iter().map(String::as_str), Forms::All, personal)
}

fn print(value: &serde_json::Value) -> io::Result<()> {
    writeln!(io::stdout(), "{value}")
}

/// Returns the CPU time of this thread, because others may use the machine too.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

/// Measures the best throughput of several rounds.
fn throughput(what: &str, redactor: &Redactor, text: &[u8]) -> io::Result<()> {
    let mut best_s = f64::MAX;
    let mut marks = 0;
    let mut out = Vec::with_capacity(2 * text.len());
    for _ in 0..ROUNDS {
        out.clear();
        let start_s = cpu_s();
        let mut stream = redactor.stream();
        for piece in text.chunks(PIECE_BYTES) {
            stream.push(piece, &mut out);
        }
        stream.finish(&mut out);
        best_s = best_s.min(cpu_s() - start_s);
        marks = stream.found().secrets + stream.found().personal;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few million")]
    let megabytes = text.len() as f64 / MEGABYTE;
    print(&json!({"what": what, "mb_per_s": (megabytes / best_s).round(), "marks": marks}))
}

fn construction(what: &str, secrets: &[String]) -> io::Result<()> {
    let before_kib = resident_kib("VmRSS:");
    // resets the peak
    let reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    let start_s = cpu_s();
    let redactor = new(secrets, Personal::Keep);
    let construct_ms = (cpu_s() - start_s) * 1000.0;
    let grown_mib = |name| resident_kib(name).saturating_sub(before_kib) / 1024;
    print(&json!({
        "what": format!("construct, {what}"),
        "ms": (construct_ms * 10.0).round() / 10.0,
        "states": redactor.states(),
        "peak_mib": reset.then(|| grown_mib("VmHWM:")),
        "kept_mib": grown_mib("VmRSS:"),
    }))
}

fn resident_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
