//! JavaScript and TypeScript: read by tree-sitter, which goes on after an error, so that rules see every program. Whether a program
//! is broken is said only if the parser that prepares modules for Node.js says so, too: the grammars do not know all of the language.

mod calls;
mod files;
mod known;
mod look;
mod nesting;
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
use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::SourceType;
use ringfence_types::Analysis;
use scope::Scopes;
use std::ops::Range;
use syntax::{Cut, Grammar, Id, Kind, Program, Reading};

/// Of faults that only one parser sees.
const UNREAD_MAX: usize = 5;

/// Which language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As Node.js runs it: no JSX.
    JavaScript,
    /// With JSX, if it has any.
    TypeScript,
}

/// What is found of a program.
pub(crate) fn check(code: &str, dialect: Dialect) -> Checked {
    let mut checked = Checked::default();
    checked.analysis.cyclomatic_complexity = 1;
    let Some((reading, grammar)) = read(code, dialect) else {
        checked.findings = match objection(code, dialect) {
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
    let jsx = program
        .ids()
        .find(|id| program.kind(*id) == Kind::Jsx)
        .filter(|_| grammar == Grammar::JavaScript);
    if !faults.is_empty() || jsx.is_some() {
        let jsx = jsx.map(|id| program.range(id));
        checked.findings.extend(broken(code, dialect, &faults, jsx));
    }
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

/// What the other parser says.
enum Judgement {
    Sound,
    Broken {
        range: Range<usize>,
        what: String,
    },
    /// Too deep for it.
    Silent,
}

fn broken(code: &str, dialect: Dialect, faults: &[tree::Fault], jsx: Option<Range<usize>>) -> Vec<Finding> {
    match objection(code, dialect) {
        Judgement::Broken { range, what } => vec![finding(range, &rules::SYNTAX, what)],
        Judgement::Sound | Judgement::Silent => {
            let what = |fault: &tree::Fault| match &fault.missing {
                Some(missing) => format!("`{missing}` may be missing"),
                None => "this was not understood".to_owned(),
            };
            let faults = faults.iter().take(UNREAD_MAX);
            let told = faults.map(|fault| finding(fault.range.clone(), &rules::UNPARSED, what(fault)));
            let jsx = jsx.map(|range| finding(range, &rules::UNPARSED, "this may be JSX".to_owned()));
            told.chain(jsx).collect()
        }
    }
}

/// Where the parser that prepares modules stops. A program is sound if it is one as a script or as a module.
fn objection(code: &str, dialect: Dialect) -> Judgement {
    if nesting::is_deep(code) {
        return Judgement::Silent;
    }
    let kinds: &[SourceType] = match dialect {
        Dialect::JavaScript => &[SourceType::cjs(), SourceType::mjs()],
        Dialect::TypeScript if code.contains("</") || code.contains("/>") => {
            &[SourceType::ts(), SourceType::tsx()]
        }
        Dialect::TypeScript => &[SourceType::ts()],
    };
    let mut farthest: Option<(Range<usize>, String)> = None;
    for kind in kinds {
        let allocator = Allocator::default();
        let options = ParseOptions {
            allow_return_outside_function: true,
            ..ParseOptions::default()
        };
        let parsed = Parser::new(&allocator, code, *kind).with_options(options).parse();
        let Some(error) = parsed.diagnostics.errors().next() else {
            match parsed.panicked {
                true => continue,
                false => return Judgement::Sound,
            }
        };
        let place = error
            .labels
            .first()
            .map_or(0, |label| label.offset() as usize)
            .min(code.len());
        let length = error.labels.first().map_or(0, |label| label.len() as usize);
        // The reading that gets farther is the one that was meant.
        if farthest.as_ref().is_none_or(|(range, _)| range.start < place) {
            let range = place..(place + length).min(code.len());
            farthest = Some((range, error.message.to_string()));
        }
    }
    match farthest {
        Some((range, what)) => Judgement::Broken { range, what },
        None => Judgement::Silent,
    }
}
