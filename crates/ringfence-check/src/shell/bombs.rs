//! What only starts itself, faster than it ends.

use super::{
    call::{Call, is_shell},
    rules,
    scene::{Report, Scene},
};
use crate::unknown::shown;

/// That start the script itself; more of them say nothing new.
const COMMANDS_MAX: usize = 1000;

/// A function that starts itself twice, once without waiting: `:(){ :|:& };:`; and a script that does so, or in a loop.
pub(super) fn look(scene: &Scene<'_>, report: &mut Report) {
    for function in &scene.script.functions {
        let name = function.name;
        let starts = |index: &usize| scene.starts(&(*index..*index + 1), |call| call.path == name);
        let itself: Vec<usize> = function.commands.clone().filter(starts).collect();
        let in_background = |index: &&usize| is_background(scene, **index);
        let mut background = itself.iter().filter(in_background).peekable();
        let waits = background.peek().is_none();
        let looped = background.any(|index| is_in_loop(scene, *index, function.commands.start));
        let how = match itself.len() {
            _ if looped => "in a loop".to_owned(),
            count if count >= 2 && !waits => format!("{count} times"),
            _ => continue,
        };
        let what = format!(
            "the function `{}` starts itself {how} and does not wait",
            shown(name)
        );
        report.at(scene, &function.range).tell(&rules::FORK_BOMB, what);
    }
    script(scene, report);
}

fn script(scene: &Scene<'_>, report: &mut Report) {
    let starts_itself = |index: &usize| scene.starts(&(*index..*index + 1), starts_script);
    let commands = 0..scene.started.len();
    let own: Vec<usize> = commands.filter(starts_itself).take(COMMANDS_MAX).collect();
    let looped = own.iter().find(|index| {
        let alone = scene.starts(&(**index..**index + 1), |call| {
            starts_script(call) && call.arguments.len() == usize::from(is_shell(&call.name))
        });
        alone && is_background(scene, **index) && is_in_loop(scene, **index, 0)
    });
    let (first, what) = match (looped, own.as_slice()) {
        (Some(first), _) => (*first, "the script starts itself in a loop and does not wait"),
        (None, [first, second, ..]) if is_background(scene, *second) => {
            (*first, "the script starts itself twice and does not wait")
        }
        _ => return,
    };
    if let Some(command) = scene.command(first) {
        report.at(scene, &command.range).tell(&rules::FORK_BOMB, what);
    }
}

/// `$0`, `bash $0`; with arguments it may do something else.
fn starts_script(call: &Call) -> bool {
    let own = |text: &str| matches!(text, "$0" | "./$0");
    own(&call.path) || is_shell(&call.name) && matches!(call.operands().as_slice(), [one] if own(one))
}

fn is_background(scene: &Scene<'_>, index: usize) -> bool {
    scene.command(index).is_some_and(|command| command.background)
}

fn is_in_loop(scene: &Scene<'_>, index: usize, from: usize) -> bool {
    let mut loops = scene.script.loops.iter();
    loops.any(|body| body.start >= from && body.contains(&index))
}
