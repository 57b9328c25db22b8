//! Fork bombs: functions and scripts that start themselves faster than they end.

use super::{
    call::{Call, is_shell},
    rules,
    scene::{Report, ShellContext},
    syntax::Command,
};
use crate::unknown::shown;
use std::ops::Range;

/// Maximum number of self-starting commands that are collected; more add nothing.
const COMMANDS_MAX: usize = 1000;

/// Reports a function or a script that starts itself with `&` in a loop, or twice and once with `&`: `:(){ :|:& };:`.
pub(super) fn check(context: &ShellContext<'_>, report: &mut Report) {
    for function in &context.script.functions {
        let (name, range) = (function.name, &function.range);
        if bomb(context, &function.commands, |call| call.path == name).is_some() {
            let what = format!("the function `{}` starts itself and does not wait", shown(name));
            report.at(context, range).report(&rules::FORK_BOMB, what);
        }
    }
    let script = 0..context.started.len();
    if let Some(first) = bomb(context, &script, starts_script) {
        let what = "the script starts itself and does not wait";
        report.at(context, &first.range).report(&rules::FORK_BOMB, what);
    }
}

/// Returns the first of the commands that start the function or script they are in, if together they are a fork bomb.
fn bomb<'s>(
    context: &ShellContext<'s>,
    commands: &Range<usize>,
    is_itself: impl Fn(&Call) -> bool,
) -> Option<&'s Command<'s>> {
    let starts = |index: &usize| context.starts(&(*index..*index + 1), &is_itself);
    let itself: Vec<usize> = commands.clone().filter(starts).take(COMMANDS_MAX).collect();
    let in_loop = |index: &usize| {
        let mut loops = context.script.loops.iter();
        loops.any(|body| body.start >= commands.start && body.contains(index))
    };
    let is_background = |index: &&usize| context.script.commands[**index].background;
    let mut background = itself.iter().filter(is_background);
    let grows = match itself.len() {
        0 | 1 => background.any(in_loop),
        _ => background.next().is_some(),
    };
    context.command(*itself.first().filter(|_| grows)?)
}

/// True for `$0` and `bash $0`; with arguments the script may do something else.
fn starts_script(call: &Call) -> bool {
    let own = |text: &str| matches!(text, "$0" | "./$0");
    let texts: Vec<&str> = call.texts().collect();
    match texts.as_slice() {
        [] => own(&call.path),
        [one] => is_shell(&call.name) && own(one),
        _ => false,
    }
}
