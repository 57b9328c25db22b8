//! The content of files that an approved command names.

use crate::world::{World, binary, cgroups, support, text, words};
use ringfence_host::{CallContext, Command, Rules, prepare};
use ringfence_types::RequestError;
use std::{fs, os::unix::fs::symlink, time::Duration};

/// Prepares a command as if a person had approved it, and binds it to its files.
fn bound(world: &World, command: &str) -> Result<Command, RequestError> {
    bound_by(&world.rules(), world, command)
}

fn bound_by(rules: &Rules, world: &World, command: &str) -> Result<Command, RequestError> {
    let words = words(&world.fill(command));
    let place = CallContext {
        namespace: "default",
        directory: Some(&world.directory),
        timeout: Duration::from_secs(10),
        support: support(),
        cgroups: cgroups(),
    };
    let mut command = prepare(rules, &rules.approved(&words).unwrap(), &place)?;
    command.bind_files(words.arguments())?;
    Ok(command)
}

/// Each file is bound in full, by any form of a word; links and too many or too large files are refused; a change is
/// noticed at the start. The control: words that name no file bind nothing, and an unchanged file lets the command run.
/// claim: [HOST-4]
pub fn approval_is_bound_to_the_content_of_named_files() {
    let world = World::new("named");
    let at = |name: &str| world.directory.join(name);
    let digest = |command: &str| bound(&world, command).unwrap().files;
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), vec![b'x'; 3 << 20]).unwrap();
    let names = |files: Vec<String>| {
        files
            .into_iter()
            .map(|file| file.split_once(": ").unwrap().0.to_owned())
    };
    for word in [
        "d/f",
        "./d/f",
        "$D/d/f",
        "$D/./d//f",
        "--config=d/f",
        "-fd/f",
        "-xvfd/f",
        "a=b:d/f,x",
        "@d/f",
        "'-x d/f'",
        "'x;./d/f'",
        "'@include \"d/f\"'",
    ] {
        let found = names(digest(&format!("cat {word}")));
        assert!(found.into_iter().any(|name| name.ends_with("/f")), "{word}");
    }
    assert!(digest("cat d x/y --d a=d /etc/shadow $S /dev/null").is_empty());
    assert!(!digest("cat /usr/bin/env").is_empty());
    // Also after the first mebibyte.
    let before = digest("cat d/f");
    fs::write(at("d/f"), [vec![b'x'; (3 << 20) - 1], vec![b'y']].concat()).unwrap();
    assert_ne!(before, digest("cat d/f"));

    symlink("d/f", at("link")).unwrap();
    symlink("d", at("way")).unwrap();
    for (word, why) in [
        ("link", "leads through a link"),
        ("--x=way/f", "leads through a link"),
        ("way/../d/f", "leads through a link"),
        ("../work/d/f", "leaves its directory"),
        ("$D/../work/d/f", "leaves its directory"),
        ("/dev/..$D/d/f", "leaves its directory"),
        ("/proc/2/cwd/d/f", "leads through a link"),
    ] {
        let refused = bound(&world, &format!("cat {word}")).unwrap_err();
        assert!(refused.message.contains(why), "{word}: {refused}");
    }
    let many: Vec<String> = (0..17).map(|number| format!("n{number}")).collect();
    many.iter().for_each(|name| fs::write(at(name), "x").unwrap());
    assert_eq!(digest(&format!("cat {}", many[..16].join(" "))).len(), 16);
    let refused = bound(&world, &format!("cat {}", many.join(" "))).unwrap_err();
    assert!(refused.message.contains("more than 16 files"), "{refused}");
    fs::File::create(at("large"))
        .unwrap()
        .set_len((64 << 20) + 1)
        .unwrap();
    let refused = bound(&world, "cat large").unwrap_err();
    assert!(refused.message.contains("more than 64 MiB"), "{refused}");

    file_visible_by_a_rule_is_bound(&world);
    let command = bound(&world, "sort n0").unwrap();
    let outcome = command.start(&binary()).unwrap().wait().unwrap();
    assert_eq!(text(&outcome.stdout.bytes), "x\n");
    fs::write(at("n0"), "y").unwrap();
    let refused = command.start(&binary()).unwrap_err();
    assert!(refused.message.contains("has changed"), "{refused}");
}

/// A file outside of the directory is bound if the rule names a link to its directory.
fn file_visible_by_a_rule_is_bound(world: &World) {
    let (linked, shown) = (world.base.join("linked"), world.base.join("open/run"));
    symlink("open", &linked).unwrap();
    fs::write(&shown, "x").unwrap();
    let effect = format!(
        "programs:\n  - {{program: tee, why: a test, effect: {{reads: [directory, {}]}}, forms: [{{rule: tee, \
         operands: {{kind: text, max: 1}}, match: [tee], refuse: [tee -a]}}]}}\n",
        linked.display()
    );
    let seen = |rules: &Rules| bound_by(rules, world, &format!("tee {}", shown.display()));
    assert_eq!(seen(&world.rules_with(&effect)).unwrap().files.len(), 1);
    assert!(seen(&world.rules()).unwrap().files.is_empty(), "the control");
}
