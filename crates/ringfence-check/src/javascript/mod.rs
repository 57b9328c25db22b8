//! JavaScript and TypeScript: read by tree-sitter, which goes on after an error, so that rules see every program. Whether a program
//! is broken is said only if the parser that prepares modules for Node.js says so, too: the grammars do not know all of the language.

mod calls;
mod files;
mod known;
mod line_ends;
mod look;
mod nesting;
mod refusal;
mod result;
mod rules;
mod scope;
mod syntax;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use rules::RULES;

use crate::{
    rule::{Checked, Finding, Rule},
    tree,
};
use look::Look;
use refusal::Judgement;
use ringfence_types::{
    Analysis,
    Severity::{self, Info},
};
use scope::Scopes;
use std::ops::Range;
use syntax::{Cut, Grammar, Id, Kind, Program, Reading};

/// Of faults that only one parser sees.
const UNREAD_MAX: usize = 5;
/// Deeper than this no person writes; the other parser goes down with the text.
const DEPTH_MAX: usize = 1000;

/// Which language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As Node.js runs it: no JSX.
    JavaScript,
    /// With JSX, if it has any.
    TypeScript,
}

/// Where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// By itself: a script, or else a module.
    Program,
    /// As a call of a session, as in a console: `await` may stand at its top, `return` may not.
    Call,
}

/// What is found of a program.
pub(crate) fn check(code: &str, dialect: Dialect, setting: Setting) -> Checked {
    let mut checked = Checked::default();
    checked.analysis.cyclomatic_complexity = 1;
    let Some((reading, grammar)) = read(code, dialect) else {
        let judgement = match nesting::is_deep(code) {
            true => Judgement::Silent,
            false => refusal::judge(code, dialect, setting),
        };
        checked.findings = match judgement {
            Judgement::Broken { range, what } => vec![finding(range, &rules::SYNTAX, what)],
            _ => vec![finding(
                0..code.len(),
                &rules::UNPARSED,
                "the program takes too long to read".to_owned(),
            )],
        };
        return checked;
    };
    let Reading { program, faults, cut } = reading;
    let scopes = Scopes::of(&program);
    let look = Look::of(&program, &scopes);
    checked.findings = look.findings;
    checked.analysis = measured(&program);
    checked.analysis.imports = look.imports.into_iter().collect();
    checked.analysis.domains = look.hosts.into_iter().collect();
    let judgement = match is_deep(code, dialect, &program, &faults) {
        true => Judgement::Silent,
        false => refusal::judge(code, dialect, setting),
    };
    let jsx = program
        .ids()
        .find(|id| program.kind(*id) == Kind::Jsx)
        .filter(|_| grammar == Grammar::JavaScript);
    let jsx = jsx.map(|id| program.range(id));
    checked.findings.extend(judged(judgement, &faults, jsx));
    if cut == Cut::Yes {
        let end = program.nodes.last().map_or(0, |_| {
            program
                .range(Id::try_from(program.nodes.len() - 1).unwrap_or(0))
                .end
        });
        checked.findings.push(finding(
            end..code.len(),
            &rules::UNPARSED,
            "the program is too long".to_owned(),
        ));
    }
    checked.findings.extend(line_ends::odd(code));
    checked
}

/// With the grammar that fits; none: it takes too long.
fn read(code: &str, dialect: Dialect) -> Option<(Reading<'_>, Grammar)> {
    if dialect == Dialect::JavaScript {
        return Some((syntax::read(code, Grammar::JavaScript)?, Grammar::JavaScript));
    }
    let plain = syntax::read(code, Grammar::TypeScript)?;
    // JSX closes what it opens.
    if !plain.faults.is_empty()
        && (code.contains("</") || code.contains("/>"))
        && let Some(with_jsx) = syntax::read(code, Grammar::Tsx)
        && with_jsx.faults.is_empty()
    {
        return Some((with_jsx, Grammar::Tsx));
    }
    Some((plain, Grammar::TypeScript))
}

fn finding(range: Range<usize>, rule: &'static Rule, what: String) -> Finding {
    Finding {
        range,
        rule,
        severity: rule.severity,
        what,
        hint: None,
    }
}

/// Counts.
fn measured(program: &Program<'_>) -> Analysis {
    let mut analysis = Analysis::default();
    let mut decisions = 0_u32;
    for node in &program.nodes {
        match node.kind {
            Kind::FunctionDeclaration | Kind::FunctionExpression | Kind::Arrow | Kind::Method => {
                analysis.functions += 1
            }
            Kind::ClassDeclaration | Kind::ClassExpression => analysis.classes += 1,
            Kind::If | Kind::Ternary | Kind::For | Kind::ForIn | Kind::While | Kind::Case | Kind::Catch => {
                decisions += 1
            }
            Kind::And | Kind::Or | Kind::Nullish | Kind::Decides => decisions += 1,
            _ => {}
        }
    }
    analysis.cyclomatic_complexity = decisions + 1;
    analysis
}

/// Should a parser that recurses better not be asked. Where the tree is whole, it tells how deep the text is; types are not in it.
fn is_deep(code: &str, dialect: Dialect, program: &Program<'_>, faults: &[tree::Fault]) -> bool {
    let guessed = dialect == Dialect::TypeScript || !faults.is_empty();
    program.depth() > DEPTH_MAX || guessed && nesting::is_deep(code)
}

/// What is told of the syntax: that the program is broken, or where no rule has seen what it does.
fn judged(judgement: Judgement, faults: &[tree::Fault], jsx: Option<Range<usize>>) -> Vec<Finding> {
    let severity: Severity = match judgement {
        Judgement::Broken { range, what } => return vec![finding(range, &rules::SYNTAX, what)],
        // It is known to be a program as a whole.
        Judgement::Sound => Info,
        Judgement::Silent => rules::UNPARSED.severity,
    };
    let what = |fault: &tree::Fault| match &fault.missing {
        Some(missing) => format!("`{missing}` may be missing"),
        None => "this was not understood".to_owned(),
    };
    let faults = faults.iter().take(UNREAD_MAX);
    let told = faults.map(|fault| finding(fault.range.clone(), &rules::UNPARSED, what(fault)));
    let jsx = jsx.map(|range| finding(range, &rules::UNPARSED, "this may be JSX".to_owned()));
    told.chain(jsx)
        .map(|found| Finding { severity, ..found })
        .collect()
}
