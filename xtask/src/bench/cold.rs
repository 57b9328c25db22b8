//! Cold starts: a bare interpreter, the interpreter in bubblewrap and in Ringfence, and the smallest program behind all
//! layers.

use super::Row;
use crate::{
    command::{capture, command, exists, show},
    stats::Samples,
    workspace::Workspace,
};
use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

/// Uncounted rounds at the start, which fill the page cache.
const WARM_UP: usize = 3;

/// A row of the table: its name, and a function that returns one measurement in milliseconds.
struct Line {
    name: &'static str,
    measure: Box<dyn FnMut() -> Result<f64, String>>,
}

/// Measures all rows in turn.
pub fn measure(workspace: &Workspace, runs: usize) -> Result<Vec<Row>, String> {
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
    for round in 0..runs + WARM_UP {
        for (line, taken) in lines.iter_mut().zip(&mut taken) {
            let milliseconds = (line.measure)()?;
            if round >= WARM_UP {
                taken.push(milliseconds);
            }
        }
    }
    let rows = lines.iter().zip(taken).filter_map(|(line, taken)| {
        Some(Row {
            name: line.name.to_owned(),
            samples: Samples::new(taken)?,
            reference: Some(lines[0].name.to_owned()),
        })
    });
    Ok(rows.collect())
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
        println!("bubblewrap is not installed: its row is left out");
    }
    let run = move || time(command(&binary, [Path::new("run"), &pass]));
    lines.push(Line {
        name: "ringfence run of the file `pass`",
        measure: Box::new(run),
    });
    let mut alone = SandboxOnly::start(workspace)?;
    lines.push(Line {
        name: "/bin/true behind all layers, sandbox only",
        measure: Box::new(move || alone.measure()),
    });
    Ok(lines)
}

/// Returns the interpreter that Ringfence itself would start, so that all rows measure the same one.
pub fn interpreter(binary: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let script = scratch.join("where.py");
    fs::write(&script, "import sys\nprint(sys.executable)\n")
        .map_err(|error| format!("{}: {error}", script.display()))?;
    let output = capture(command(binary, [Path::new("run"), &script]))?;
    let path = PathBuf::from(output.trim());
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("the path of the sandbox's python is `{}`", output.trim()))
    }
}

/// Measures the wall time of a process, from before its start until its end has been waited for.
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
    // An interpreter outside /usr: `prefix/bin/python3`.
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

/// The sandbox alone, without the start of our own binary: from the request to a running helper until the process tree
/// of `/bin/true` has ended.
struct SandboxOnly {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl SandboxOnly {
    fn start(workspace: &Workspace) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the example `cold`: {error}");
        let mut child = command(workspace.target.join("release/examples/cold"), ["/bin/true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (requests, answers) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .ok_or("the example `cold` has no pipes")?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    fn measure(&mut self) -> Result<f64, String> {
        let mut answer = String::new();
        writeln!(self.requests)
            .and_then(|()| self.answers.read_line(&mut answer))
            .map_err(|error| format!("the example `cold`: {error}"))?;
        let milliseconds = answer.trim().parse();
        milliseconds.map_err(|_| format!("the example `cold` printed `{}`", answer.trim()))
    }
}

impl Drop for SandboxOnly {
    fn drop(&mut self) {
        // The example has no state to save, and its helper ends with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_not_a_measurement() {
        assert!(time(command("false", [""; 0])).is_err());
        assert!(time(command("true", [""; 0])).unwrap() > 0.0);
    }
}
