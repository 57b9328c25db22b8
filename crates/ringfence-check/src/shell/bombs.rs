//! What only starts itself, faster than it ends.

use super::{
    call::{Call, is_shell},
    rules,
    scene::{Report, Scene},
    syntax::Command,
};
use crate::unknown::shown;
use std::ops::Range;

/// That start themselves; more of them say nothing new.
const COMMANDS_MAX: usize = 1000;

/// A function that starts itself twice, once without waiting: `:(){ :|:& };:`; or in a loop; and a script that does so.
pub(super) fn look(scene: &Scene<'_>, report: &mut Report) {
    for function in &scene.script.functions {
        let name = function.name;
        if bomb(scene, &function.commands, |call| call.path == name).is_some() {
            let what = format!("the function `{}` starts itself and does not wait", shown(name));
            report.at(scene, &function.range).tell(&rules::FORK_BOMB, what);
        }
    }
    let script = 0..scene.started.len();
    if let Some(first) = bomb(scene, &script, starts_script) {
        let what = "the script starts itself and does not wait";
        report.at(scene, &first.range).tell(&rules::FORK_BOMB, what);
    }
}

/// The first of the commands that start what they are in.
fn bomb<'s>(
    scene: &Scene<'s>,
    commands: &Range<usize>,
    is_itself: impl Fn(&Call) -> bool,
) -> Option<&'s Command<'s>> {
    let starts = |index: &usize| scene.starts(&(*index..*index + 1), &is_itself);
    let itself: Vec<usize> = commands.clone().filter(starts).take(COMMANDS_MAX).collect();
    let in_loop = |index: &usize| {
        let mut loops = scene.script.loops.iter();
        loops.any(|body| body.start >= commands.start && body.contains(index))
    };
    let is_background = |index: &&usize| scene.script.commands[**index].background;
    let mut background = itself.iter().filter(is_background);
    let grows = match itself.len() {
        0 | 1 => background.any(in_loop),
        _ => background.next().is_some(),
    };
    scene.command(*itself.first().filter(|_| grows)?)
}

/// `$0`, `bash $0`; with arguments it may do something else.
fn starts_script(call: &Call) -> bool {
    let own = |text: &str| matches!(text, "$0" | "./$0");
    let texts: Vec<&str> = call.texts().collect();
    match texts.as_slice() {
        [] => own(&call.path),
        [one] => is_shell(&call.name) && own(one),
        _ => false,
    }
}
