//! The left spine of an expression, down to `a` in `a + b + c`, `a.b.c` and `a()[0]()`. Generated code has spines of
//! thousands of terms, so walks follow them in a loop and recurse only where brackets bound the depth (see `nesting`).

use ruff_python_ast::{Expr, visitor::Visitor};

/// Returns the leftmost part of an expression, if it nests without a bracket.
fn left_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::BinOp(binary) => Some(&binary.left),
        Expr::Attribute(attribute) => Some(&attribute.value),
        Expr::Call(call) => Some(&call.func),
        Expr::Subscript(subscript) => Some(&subscript.value),
        _ => None,
    }
}

/// Returns the parts of a spine, from the innermost to the whole: `a`, `a.b`, `a.b()`.
pub(crate) fn spine_of(expr: &Expr) -> Vec<&Expr> {
    let mut parts: Vec<&Expr> = std::iter::successors(Some(expr), |at| left_of(at)).collect();
    parts.reverse();
    parts
}

/// Visits the parts of an expression besides its leftmost part.
pub(crate) fn walk_right<'a, V: Visitor<'a> + ?Sized>(visitor: &mut V, expr: &'a Expr) {
    match expr {
        Expr::BinOp(binary) => visitor.visit_expr(&binary.right),
        Expr::Call(call) => visitor.visit_arguments(&call.arguments),
        Expr::Subscript(subscript) => visitor.visit_expr(&subscript.slice),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruff_python_parser::parse_expression;
    use ruff_text_size::Ranged;

    #[test]
    fn spine_goes_from_the_innermost_part_to_the_whole() {
        for count in [0, 1, 6, 7, 8, 9, 100] {
            let code = format!("a{}", ".b".repeat(count));
            let parsed = parse_expression(&code).unwrap();
            let spine = spine_of(parsed.expr());
            let ends: Vec<usize> = spine.iter().map(|part| part.end().to_usize()).collect();
            let expect: Vec<usize> = (0..=count).map(|at| 1 + 2 * at).collect();
            assert_eq!(ends, expect);
        }
    }
}
