//! Cold starts side by side in one run, interleaved (A B C A B C ...) so that whatever else the machine does hits all
//! alike: a bare interpreter, bubblewrap around it, ours around it, and the least program behind all layers.

use crate::{
    command::{capture, command, exists, show},
    stats::Samples,
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

const RUNS: usize = 100;
/// Rounds before the count, which fill the page cache.
const WARM_UP: usize = 3;
const DOCUMENT: &str = "SPECIFICATION.md";
const BEGIN: &str = "<!-- bench cold: begin -->";
const END: &str = "<!-- bench cold: end -->";

/// What was asked for.
pub struct Options {
    runs: usize,
    json: bool,
    write: bool,
}

impl Options {
    /// `--runs N`, `--json`, `--write`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            runs: RUNS,
            json: false,
            write: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--runs" => {
                    let count = words
                        .next()
                        .and_then(|count| count.parse().ok())
                        .filter(|count| *count > 0);
                    options.runs = count.ok_or("--runs wants a number above 0")?;
                }
                other => return Err(format!("bench cold: unknown option {other}")),
            }
        }
        Ok(options)
    }
}

/// One line of the table: what is measured, and one measurement of it in milliseconds.
struct Line {
    name: &'static str,
    measure: Box<dyn FnMut() -> Result<f64, String>>,
}

/// Measures, prints, and writes the table into the specification when asked.
pub fn cold(workspace: &Workspace, options: &Options) -> Result<(), String> {
    show(workspace.cargo(&["build", "--release", "--locked", "-p", "ringfence"]))?;
    let example = [
        "build",
        "--release",
        "--locked",
        "-p",
        "ringfence-jail",
        "--example",
        "cold",
    ];
    show(workspace.cargo(&example))?;
    let scratch = workspace.target.join("bench");
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let mut lines = lines(workspace, &scratch)?;
    let mut taken: Vec<Vec<f64>> = vec![Vec::new(); lines.len()];
    for round in 0..options.runs + WARM_UP {
        for (line, taken) in lines.iter_mut().zip(&mut taken) {
            let milliseconds = (line.measure)()?;
            if round >= WARM_UP {
                taken.push(milliseconds);
            }
        }
    }
    let rows: Vec<(&str, Samples)> = lines
        .iter()
        .zip(taken)
        .filter_map(|(line, taken)| Some((line.name, Samples::new(taken)?)))
        .collect();
    if options.json {
        println!("{}", as_json(&rows));
    } else {
        print!("{}", as_text(&rows));
    }
    if options.write {
        write(workspace, &rows)
    } else {
        Ok(())
    }
}

fn lines(workspace: &Workspace, scratch: &Path) -> Result<Vec<Line>, String> {
    let pass = scratch.join("pass.py");
    fs::write(&pass, "pass\n").map_err(|error| format!("{}: {error}", pass.display()))?;
    let binary = workspace.binary();
    let python = interpreter(&binary, scratch)?;
    let mut lines = Vec::new();
    let bare = python.clone();
    lines.push(Line {
        name: "bare python3 -c pass (reference)",
        measure: Box::new(move || time(command(&bare, ["-c", "pass"]))),
    });
    if exists("bwrap") {
        lines.push(Line {
            name: "bubblewrap + python3 -c pass",
            measure: Box::new(move || time(bubblewrap(&python))),
        });
    } else {
        println!("bubblewrap is not installed: its line is left out");
    }
    let run = move || time(command(&binary, [Path::new("run"), &pass]));
    lines.push(Line {
        name: "ringfence run of the file `pass`",
        measure: Box::new(run),
    });
    let mut alone = JailAlone::start(workspace)?;
    lines.push(Line {
        name: "/bin/true behind all layers, sandbox only",
        measure: Box::new(move || alone.measure()),
    });
    Ok(lines)
}

/// The interpreter that Ringfence itself would start, so that all lines measure the same one.
fn interpreter(binary: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let script = scratch.join("where.py");
    fs::write(&script, "import sys\nprint(sys.executable)\n")
        .map_err(|error| format!("{}: {error}", script.display()))?;
    let said = capture(command(binary, [Path::new("run"), &script]))?;
    let path = PathBuf::from(said.trim());
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("the sandbox's python calls itself `{}`", said.trim()))
    }
}

/// Wall time of one process, from before its start until it is waited for.
fn time(mut command: Command) -> Result<f64, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let status = command.status().map_err(|error| error.to_string())?;
    let milliseconds = begun.elapsed().as_secs_f64() * 1000.0;
    if status.success() {
        Ok(milliseconds)
    } else {
        Err(format!("{:?}: {status}", command.get_program()))
    }
}

fn bubblewrap(python: &Path) -> Command {
    let mut bwrap = command(
        "bwrap",
        ["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"],
    );
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let path = Path::new("/").join(name);
        match fs::read_link(&path) {
            Ok(target) => bwrap.arg("--symlink").arg(target).arg(&path),
            Err(_) if path.is_dir() => bwrap.arg("--ro-bind").args([&path, &path]),
            Err(_) => &mut bwrap,
        };
    }
    // An interpreter with a prefix of its own: `prefix/bin/python3`.
    if let Some(prefix) = python
        .ancestors()
        .nth(2)
        .filter(|prefix| !python.starts_with("/usr") && prefix.components().count() > 1)
    {
        bwrap.arg("--ro-bind").args([prefix, prefix]);
    }
    bwrap
        .args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--"])
        .arg(python)
        .args(["-c", "pass"]);
    bwrap
}

/// The sandbox alone, without the start of our own binary: from the request to a helper that is already there until the
/// tree of `/bin/true` is dead.
struct JailAlone {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl JailAlone {
    fn start(workspace: &Workspace) -> Result<Self, String> {
        let said = |error: io::Error| format!("the example `cold`: {error}");
        let mut child = command(workspace.target.join("release/examples/cold"), ["/bin/true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(said)?;
        let (ask, answers) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .ok_or("the example `cold` has no pipes")?;
        Ok(Self {
            child,
            ask,
            answers: BufReader::new(answers),
        })
    }

    fn measure(&mut self) -> Result<f64, String> {
        let mut answer = String::new();
        writeln!(self.ask)
            .and_then(|()| self.answers.read_line(&mut answer))
            .map_err(|error| format!("the example `cold`: {error}"))?;
        let milliseconds = answer.trim().parse();
        milliseconds.map_err(|_| format!("the example `cold` said `{}`", answer.trim()))
    }
}

impl Drop for JailAlone {
    fn drop(&mut self) {
        // It has nothing to lose, and its helper ends with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn as_text(rows: &[(&str, Samples)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{}\n{:<width$}  {:>5} {:>8} {:>8} {:>8} {:>8}  {:>7}\n",
        machine(),
        "",
        "runs",
        "min ms",
        "p50",
        "p90",
        "p99",
        "x ref"
    );
    for (name, samples) in rows {
        let [min, p50, p90, p99] = figures(samples);
        let (count, ratio) = (samples.count(), p50 / reference(rows));
        text.push_str(&format!(
            "{name:<width$}  {count:>5} {min:>8.2} {p50:>8.2} {p90:>8.2} {p99:>8.2}  {ratio:>7.2}\n"
        ));
    }
    text
}

fn as_json(rows: &[(&str, Samples)]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(name, samples)| {
            let [min, p50, p90, p99] = figures(samples);
            let ratio = p50 / reference(rows);
            json!({"name": name, "runs": samples.count(), "min_ms": min, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "p50_ratio": ratio})
        })
        .collect();
    json!({"bench": "cold", "machine": machine(), "rows": rows})
}

fn as_markdown(rows: &[(&str, Samples)]) -> String {
    let mut text = format!(
        "{}\n\n| what | runs | min ms | p50 ms | p90 ms | p99 ms | p50 × reference |\n|---|---|---|---|---|---|---|\n",
        machine()
    );
    for (name, samples) in rows {
        let [min, p50, p90, p99] = figures(samples);
        let (count, ratio) = (samples.count(), p50 / reference(rows));
        text.push_str(&format!(
            "| {name} | {count} | {min:.2} | {p50:.2} | {p90:.2} | {p99:.2} | {ratio:.2} |\n"
        ));
    }
    text
}

fn figures(samples: &Samples) -> [f64; 4] {
    [
        samples.min(),
        samples.percentile(50),
        samples.percentile(90),
        samples.percentile(99),
    ]
}

/// The first line's middle: every ratio is against it, in the same run.
fn reference(rows: &[(&str, Samples)]) -> f64 {
    rows.first()
        .map_or(f64::NAN, |(_, samples)| samples.percentile(50))
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}",
        kernel.split('-').next().unwrap_or("").trim()
    )
}

fn write(workspace: &Workspace, rows: &[(&str, Samples)]) -> Result<(), String> {
    let path = workspace.root.join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let text = replace(&text, &as_markdown(rows))
        .ok_or_else(|| format!("{DOCUMENT} lacks `{BEGIN}` and `{END}`"))?;
    fs::write(&path, text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// The text with everything between the two marks replaced.
fn replace(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("# a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(
            replace(&text, "| new |").unwrap(),
            format!("# a\n{BEGIN}\n\n| new |\n{END}\nb\n")
        );
        assert!(replace("# nothing here", "x").is_none());
        let twice = replace(&replace(&text, "one").unwrap(), "two").unwrap();
        assert!(twice.contains("two") && !twice.contains("one") && twice.matches(BEGIN).count() == 1);
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--runs", "7", "--json"]).unwrap();
        assert!(options.runs == 7 && options.json && !options.write);
        assert!(Options::parse(&["--runs", "0"]).is_err());
        assert!(Options::parse(&["--runs"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }

    #[test]
    fn a_program_that_fails_is_not_a_measurement() {
        assert!(time(command("false", [""; 0])).is_err());
        assert!(time(command("true", [""; 0])).unwrap() > 0.0);
    }

    #[test]
    fn ratios_are_against_the_first_line() {
        let rows = [
            ("a", Samples::new(vec![10.0]).unwrap()),
            ("b", Samples::new(vec![25.0]).unwrap()),
        ];
        assert_eq!(as_json(&rows)["rows"][1]["p50_ratio"], 2.5);
        assert!(as_text(&rows).contains("2.50") && as_markdown(&rows).contains("| b | 1 | 25.00 |"));
    }
}
