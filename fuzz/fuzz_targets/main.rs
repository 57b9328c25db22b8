//! Fuzz targets for every parser of untrusted bytes, each with assertions about its answers. They are one program, so
//! that it is linked once: `RINGFENCE_FUZZ` names the target; without it, the names are printed. `cargo xtask fuzz`
//! starts it, with the feature `libfuzzer` if coverage guides it.
#![cfg_attr(feature = "libfuzzer", no_main)]

mod archive;
mod check_csv;
mod check_javascript;
mod check_json;
mod check_python;
mod check_shell;
mod check_typescript;
mod code;
mod config_file;
mod document;
mod egress_client_hello;
mod egress_dns;
mod egress_http_head;
mod egress_rule;
#[cfg(not(feature = "libfuzzer"))]
mod mutation;
mod picture;
mod program_report;
mod redact_stream;
mod wire_frame;

use std::sync::LazyLock;

/// A function that takes one input.
type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 17] = [
    ("archive", archive::run),
    ("check_csv", check_csv::run),
    ("check_javascript", check_javascript::run),
    ("check_json", check_json::run),
    ("check_python", check_python::run),
    ("check_shell", check_shell::run),
    ("check_typescript", check_typescript::run),
    ("config_file", config_file::run),
    ("document", document::run),
    ("egress_client_hello", egress_client_hello::run),
    ("egress_dns", egress_dns::run),
    ("egress_http_head", egress_http_head::run),
    ("egress_rule", egress_rule::run),
    ("picture", picture::run),
    ("program_report", program_report::run),
    ("redact_stream", redact_stream::run),
    ("wire_frame", wire_frame::run),
];

#[expect(clippy::disallowed_methods, reason = "the arguments belong to libFuzzer")]
static CHOSEN: LazyLock<Option<Target>> = LazyLock::new(|| {
    let name = std::env::var("RINGFENCE_FUZZ").ok()?;
    let known = TARGETS.iter().find(|(known, _)| *known == name);
    known.map(|(_, run)| *run)
});

fn print_names() {
    TARGETS.iter().for_each(|(name, _)| println!("{name}"));
}

/// `fuzz INPUTS FILE [DIRECTORY]`: tries this many inputs: the directory's seeds, and others made from them. The file
/// holds the current input, and keeps it if that ends the program.
#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::io::Result<()> {
    use std::{env, fs, io};
    let Some(run) = *CHOSEN else {
        print_names();
        return Ok(());
    };
    let words: Vec<String> = env::args().skip(1).collect();
    let [inputs, file, directory @ ..] = words.as_slice() else {
        return Err(io::Error::other("usage: fuzz INPUTS FILE [DIRECTORY]"));
    };
    let mut seeds = Vec::new();
    for entry in directory
        .iter()
        .map(fs::read_dir)
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .flatten()
    {
        seeds.push(fs::read(entry?.path())?);
    }
    let mut mutation = mutation::Mutation::new(seeds);
    for number in 0..inputs.parse().map_err(io::Error::other)? {
        let input = mutation.input(number);
        fs::write(file, &input)?;
        run(&input);
    }
    fs::remove_file(file)
}

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(
    init: {
        if CHOSEN.is_none() {
            print_names();
            std::process::exit(0);
        }
    },
    |bytes: &[u8]| CHOSEN.iter().for_each(|run| run(bytes))
);
