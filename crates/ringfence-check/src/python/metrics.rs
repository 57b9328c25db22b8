//! Counts of a module: functions, classes and decisions; its imports and the hosts that it names.

use crate::{domains, lists::LISTS, rule::Checked};
use ruff_python_ast::{
    Expr, ExprBinOp, ExprCall, ExprFString, FStringPart, InterpolatedStringElement, Operator, Pattern, Stmt,
};
use ruff_text_size::{Ranged, TextSize};
use std::{borrow::Cow, collections::HashSet};

const IMPORTS_MAX: usize = 1000;

/// Counts of the walk over a module. Lines and characters are counted elsewhere.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    found: Checked,
    /// Start offsets of strings that are terms of a sum, which is read as a whole.
    joined: HashSet<TextSize>,
}

impl Metrics {
    pub(super) fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::FunctionDef(_) => self.found.analysis.functions += 1,
            Stmt::ClassDef(_) => self.found.analysis.classes += 1,
            Stmt::If(branch) => {
                let clauses = branch.elif_else_clauses.iter();
                self.add_decisions(1 + clauses.filter(|clause| clause.test.is_some()).count());
            }
            Stmt::For(_) | Stmt::While(_) | Stmt::Assert(_) => self.add_decisions(1),
            Stmt::Try(attempt) => self.add_decisions(attempt.handlers.len()),
            Stmt::Match(choice) => {
                let any =
                    |pattern: &Pattern| matches!(pattern, Pattern::MatchAs(any) if any.pattern.is_none());
                let cases = choice.cases.iter();
                let decisions = cases.filter(|case| case.guard.is_some() || !any(&case.pattern));
                self.add_decisions(decisions.count());
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    self.import(alias.name.to_string());
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_deref().unwrap_or_default();
                let level = usize::try_from(import.level).unwrap_or(usize::MAX);
                self.import(format!("{}{module}", ".".repeat(level.min(IMPORTS_MAX))));
            }
            _ => {}
        }
    }

    fn import(&mut self, module: String) {
        if self.found.imports.len() < IMPORTS_MAX {
            self.found.imports.insert(module);
        }
    }

    pub(super) fn add_decisions(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let complexity = &mut self.found.analysis.cyclomatic_complexity;
        *complexity = complexity.saturating_add(count);
    }

    pub(super) fn expression(&mut self, expr: &Expr) {
        match expr {
            Expr::Lambda(_) => self.found.analysis.functions += 1,
            Expr::If(_) => self.add_decisions(1),
            Expr::BoolOp(operation) => self.add_decisions(operation.values.len().saturating_sub(1)),
            Expr::BytesLiteral(bytes) => {
                let bytes: Vec<u8> = bytes.value.bytes().collect();
                domains::of(&String::from_utf8_lossy(&bytes), &mut self.found.hosts);
            }
            _ if self.joined.contains(&expr.start()) => {}
            _ => text_of(expr)
                .iter()
                .for_each(|text| domains::of(text, &mut self.found.hosts)),
        }
    }

    /// Adds the hosts of a sum as `'https://' + 'example.com' + path`: strings are joined, other terms placeholders.
    pub(super) fn sum(&mut self, operation: &ExprBinOp) {
        let mut terms = vec![&*operation.right];
        let mut left = &*operation.left;
        while let Expr::BinOp(inner) = left
            && inner.op == Operator::Add
        {
            terms.push(&inner.right);
            left = &inner.left;
        }
        terms.push(left);
        let mut joined = String::new();
        for term in terms.into_iter().rev() {
            let text = text_of(term);
            self.joined.extend(text.is_some().then(|| term.start()));
            joined.push_str(text.as_deref().unwrap_or("{}"));
        }
        domains::of(&joined, &mut self.found.hosts);
    }

    /// Adds the hosts in the arguments of a call; `path` is the function's path from a module, if it is known.
    pub(super) fn call(&mut self, call: &ExprCall, path: Option<&str>) {
        let (receiver, name) = match &*call.func {
            Expr::Name(name) => (None, name.id.as_str()),
            Expr::Attribute(attribute) => (attribute.value.as_name_expr(), attribute.attr.as_str()),
            _ => return,
        };
        for keyword in &call.arguments.keywords {
            if let Some("host" | "hostname") = keyword.arg.as_deref() {
                self.address(&keyword.value);
            }
        }
        for place in LISTS.pair_calls.get(name).into_iter().flatten() {
            if let Some(Expr::Tuple(pair)) = call.arguments.args.get(*place)
                && let [host, _, ..] = pair.elts.as_slice()
            {
                self.address(host);
            }
        }
        let module = path.and_then(|path| Some(path.rsplit_once('.')?.0));
        let module = module.or(receiver.map(|name| name.id.as_str()));
        let is_client = LISTS.client_calls.contains(&name)
            && module.is_some_and(|module| LISTS.client_modules.contains(&module));
        if let Some(first) = call.arguments.args.first()
            && (is_client || LISTS.host_calls.contains(&name) || name == "connect" && is_login(call))
        {
            self.address(first);
        }
    }

    fn address(&mut self, expression: &Expr) {
        if let Some(text) = text_of(expression) {
            domains::of_address(&text, &mut self.found.hosts);
        }
    }

    pub(super) fn conclude(mut self) -> Checked {
        self.add_decisions(1);
        self.found
    }
}

/// True for `ssh.connect('example.com', username='me')` and `client.connect('example.com', 1883)`.
fn is_login(call: &ExprCall) -> bool {
    let (second, keywords) = (call.arguments.args.get(1), call.arguments.keywords.iter());
    let mut words = keywords.filter_map(|keyword| keyword.arg.as_deref());
    second.is_some_and(Expr::is_number_literal_expr) || words.any(|word| LISTS.login_words.contains(word))
}

fn text_of(expression: &Expr) -> Option<Cow<'_, str>> {
    match expression {
        Expr::StringLiteral(text) => Some(Cow::Borrowed(text.value.to_str())),
        Expr::FString(text) => Some(Cow::Owned(with_placeholders(text))),
        _ => None,
    }
}

/// Returns the text of an f-string, with `{}` for each interpolation.
fn with_placeholders(text: &ExprFString) -> String {
    let mut joined = String::new();
    for part in text.value.iter() {
        match part {
            FStringPart::Literal(literal) => joined.push_str(literal),
            FStringPart::FString(piece) => {
                for element in &piece.elements {
                    joined.push_str(match element {
                        InterpolatedStringElement::Literal(literal) => &literal.value,
                        InterpolatedStringElement::Interpolation(_) => "{}",
                    });
                }
            }
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use ringfence_types::{Analysis, Profile};

    fn measured(code: &str) -> Analysis {
        let checked = crate::python::check(code, &crate::python::tests::question(Profile::Unrestricted));
        crate::verdict::conclude(code, checked).validation.analysis
    }

    fn check_hosts(cases: &[(&str, &[&str])]) {
        for (code, expected) in cases {
            assert_eq!(measured(code).domains, *expected, "of {code}");
        }
    }

    #[test]
    fn functions_classes_and_imports_are_counted_wherever_they_are() {
        let code = "import os, sys as s\nimport os\nfrom a.b import c\nfrom . import d\nfrom ..e import f\n\
                    class A:\n    class B: pass\n    def m(self):\n        import json\n        return lambda: 1\n\
                    async def g(): pass\n";
        let analysis = measured(code);
        assert_eq!((analysis.functions, analysis.classes), (3, 2));
        assert_eq!(analysis.imports, [".", "..e", "a.b", "json", "os", "sys"]);
    }

    #[test]
    fn every_decision_counts_one() {
        for (code, expected) in [
            ("", 1),
            ("x = 1", 1),
            ("if a: pass\nelif b: pass\nelif c: pass\nelse: pass", 4),
            ("for a in b: pass\nelse: pass", 2),
            ("while a: pass", 2),
            ("async def f():\n async for a in b: pass\n async with c: pass", 2),
            ("with a: pass", 1),
            (
                "try: pass\nexcept A: pass\nexcept B: pass\nelse: pass\nfinally: pass",
                3,
            ),
            ("assert a, b", 2),
            ("a and b and c or d", 4),
            ("a if b else c", 2),
            ("[a for b in c for d in e if f if g]", 5),
            ("{a: b for c in d}, {a for b in c}, (a for b in c)", 4),
            ("match a:\n case 1: pass\n case [2, _]: pass\n case _: pass", 3),
            ("match a:\n case _ if b: pass\n case x: pass", 2),
            ("match a:\n case 1 | 2: pass\n case _: pass", 2),
            ("def f():\n def g():\n  if a: pass", 2),
            ("lambda: a or b", 2),
        ] {
            assert_eq!(measured(code).cyclomatic_complexity, expected, "of {code}");
        }
    }

    #[test]
    fn hosts_are_found_in_texts_and_in_calls_that_connect() {
        check_hosts(&[
            ("'https://a.example/x'", &[]),
            ("x = 'https://a.example/x'", &["a.example"]),
            ("x = b'https://a.example/x'", &["a.example"]),
            (
                "x = f'https://a.example/{y}/http://b.example'",
                &["a.example", "b.example"],
            ),
            ("x = f'https://{y}.example/'", &[]),
            ("x = f'https://a.{y}.example/'", &[]),
            ("x = 'https://' 'a.example'", &["a.example"]),
            ("x = 'https://' + 'a.example' + p", &["a.example"]),
            ("x = 'https://a.' + region + '.example'", &[]),
            ("x = y + f('https://a.example')", &["a.example"]),
            ("x = y + f'{f(\"https://a.example\")}'", &["a.example"]),
            ("x = 'a.example'", &[]),
            ("d.get('a.example')", &[]),
            ("requests.get('a.example')", &["a.example"]),
            ("import requests as r\nr.get('a.example')", &["a.example"]),
            ("requests.get(url=f'https://a.example/{x}')", &["a.example"]),
            ("socket.create_connection(('a.example', 1))", &["a.example"]),
            ("s.connect(('a.example', 1))", &["a.example"]),
            ("s.sendto(b'', ('a.example', 53))", &["a.example"]),
            ("s.bind(('a.example', 1))", &[]),
            ("http.client.HTTPSConnection('a.example', 443)", &["a.example"]),
            ("HTTPSConnection('a.example:443')", &["a.example"]),
            ("sqlite3.connect('app.data')", &[]),
            ("ssh.connect('a.example', username='me')", &["a.example"]),
            ("psycopg2.connect(host='db', dbname='x')", &["db"]),
            ("app.run(host='0.0.0.0')", &[]),
            ("# https://a.example\n", &[]),
            ("def f():\n  '''https://a.example'''\n", &[]),
        ]);
    }

    #[test]
    fn metrics_of_a_deep_tree_need_no_stack() {
        let code = format!("x = {}", vec!["'a'"; 2000].join(" + "));
        assert_eq!(measured(&code).cyclomatic_complexity, 1);
        let code = format!("x = {}a{}", "[".repeat(150), "]".repeat(150));
        assert_eq!(measured(&code).cyclomatic_complexity, 1);
    }
}
