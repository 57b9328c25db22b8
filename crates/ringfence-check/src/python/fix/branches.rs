//! Statements and expressions of which a part may be left out: `if`, `match`, `assert`, `and`, a ternary, comprehensions.

use super::uses::{Pending, Place};
use crate::python::children::Node;
use ruff_python_ast::{Comprehension, Expr, Stmt, StmtIf, StmtMatch};

/// Adds the parts of a statement that has branches; false: it has none.
pub(super) fn of_statement<'a>(statement: &'a Stmt, place: Place, pending: &mut Pending<'a>) -> bool {
    match statement {
        Stmt::If(branch) => of_if(branch, place, pending),
        Stmt::Match(choice) => of_match(choice, place, pending),
        Stmt::Assert(assertion) => {
            let message = assertion.msg.as_deref();
            pending.extend(message.map(|message| (Node::Expr(message), place.conditional())));
            pending.push((Node::Expr(&assertion.test), place));
        }
        _ => return false,
    }
    true
}

fn of_if<'a>(branch: &'a StmtIf, place: Place, pending: &mut Pending<'a>) {
    for clause in branch.elif_else_clauses.iter().rev() {
        let statements = clause.body.iter().rev();
        pending.extend(statements.map(|stmt| (Node::Stmt(stmt), place.conditional())));
        let test = clause.test.as_ref();
        pending.extend(test.map(|test| (Node::Expr(test), place.conditional())));
    }
    let within = match is_main(&branch.test) {
        true => place,
        false => place.conditional(),
    };
    pending.extend(branch.body.iter().rev().map(|stmt| (Node::Stmt(stmt), within)));
    pending.push((Node::Expr(&branch.test), place));
}

fn of_match<'a>(choice: &'a StmtMatch, place: Place, pending: &mut Pending<'a>) {
    for case in choice.cases.iter().rev() {
        let statements = case.body.iter().rev();
        pending.extend(statements.map(|stmt| (Node::Stmt(stmt), place.conditional())));
        let guard = case.guard.as_deref();
        pending.extend(guard.map(|guard| (Node::Expr(guard), place.conditional())));
        pending.push((Node::Pattern(&case.pattern), place.conditional()));
    }
    pending.push((Node::Expr(&choice.subject), place));
}

/// `__name__ == '__main__'`, which is so whenever a program runs.
fn is_main(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else {
        return false;
    };
    let is_name = |part: &Expr| matches!(part, Expr::Name(name) if name.id == "__name__");
    let is_text =
        |part: &Expr| matches!(part, Expr::StringLiteral(text) if text.value.to_str() == "__main__");
    let [right] = compare.comparators.as_ref() else {
        return false;
    };
    let equal = matches!(compare.ops.as_ref(), [ruff_python_ast::CmpOp::Eq]);
    equal && ((is_name(&compare.left) && is_text(right)) || (is_text(&compare.left) && is_name(right)))
}

/// Adds the parts of an expression of which some may not be evaluated; false: all of it is.
pub(super) fn of_expression<'a>(expression: &'a Expr, place: Place, pending: &mut Pending<'a>) -> bool {
    let mut add = |part: &'a Expr, place: Place| pending.push((Node::Expr(part), place));
    let later = place.conditional();
    match expression {
        Expr::BoolOp(either) => {
            let (first, rest) = (either.values.first(), either.values.iter().skip(1));
            rest.for_each(|value| add(value, later));
            first.into_iter().for_each(|value| add(value, place));
        }
        Expr::If(either) => {
            add(&either.orelse, later);
            add(&either.body, later);
            add(&either.test, place);
        }
        Expr::Compare(compare) => {
            let (first, rest) = (compare.comparators.first(), compare.comparators.iter().skip(1));
            rest.for_each(|value| add(value, later));
            first.into_iter().for_each(|value| add(value, place));
            add(&compare.left, place);
        }
        Expr::ListComp(of) => comprehension(&of.generators, [Some(&of.elt), None], place, pending),
        Expr::SetComp(of) => comprehension(&of.generators, [Some(&of.elt), None], place, pending),
        Expr::Generator(of) => comprehension(&of.generators, [Some(&of.elt), None], place, pending),
        Expr::DictComp(of) => {
            comprehension(
                &of.generators,
                [of.key.as_deref(), Some(&of.value)],
                place,
                pending,
            );
        }
        _ => return false,
    }
    true
}

/// What is gone through first is evaluated; nobody knows whether it has anything.
fn comprehension<'a>(
    generators: &'a [Comprehension],
    elements: [Option<&'a Expr>; 2],
    place: Place,
    pending: &mut Pending<'a>,
) {
    let later = place.conditional();
    for element in elements.into_iter().flatten() {
        pending.push((Node::Expr(element), later));
    }
    for (at, generator) in generators.iter().enumerate() {
        pending.push((Node::Expr(&generator.target), later));
        pending.push((Node::Expr(&generator.iter), if at == 0 { place } else { later }));
        pending.extend(
            generator
                .ifs
                .iter()
                .map(|condition| (Node::Expr(condition), later)),
        );
    }
}
