//! What a syntax tree is made of, one step at a time. Readers that keep the nodes still to be read in a list of their own need no
//! stack, however deeply a stranger nests his code.

use ruff_python_ast::{
    Decorator, Expr, InterpolatedStringElement, Pattern, Stmt,
    visitor::{Visitor, walk_expr, walk_interpolated_string_element, walk_pattern, walk_stmt},
};

/// A node that can hold others of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'a> {
    Stmt(&'a Stmt),
    Expr(&'a Expr),
    Annotation(&'a Expr),
    Decorator(&'a Expr),
    Pattern(&'a Pattern),
    Element(&'a InterpolatedStringElement),
}

/// Adds the nodes directly below a node, the last first, so that the first is the next to be taken from the end.
pub(super) fn add_below<'a>(node: Node<'a>, pending: &mut Vec<Node<'a>>) {
    let before = pending.len();
    let mut below = Below(pending);
    match node {
        Node::Stmt(statement) => walk_stmt(&mut below, statement),
        Node::Expr(expression) | Node::Annotation(expression) | Node::Decorator(expression) => {
            walk_expr(&mut below, expression);
        }
        Node::Pattern(pattern) => walk_pattern(&mut below, pattern),
        Node::Element(element) => walk_interpolated_string_element(&mut below, element),
    }
    if let Some(added) = pending.get_mut(before..) {
        added.reverse();
    }
}

struct Below<'v, 'a>(&'v mut Vec<Node<'a>>);

impl<'a> Visitor<'a> for Below<'_, 'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.0.push(Node::Stmt(statement));
    }
    fn visit_expr(&mut self, expression: &'a Expr) {
        self.0.push(Node::Expr(expression));
    }
    fn visit_annotation(&mut self, expression: &'a Expr) {
        self.0.push(Node::Annotation(expression));
    }
    fn visit_decorator(&mut self, decorator: &'a Decorator) {
        self.0.push(Node::Decorator(&decorator.expression));
    }
    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        self.0.push(Node::Pattern(pattern));
    }
    fn visit_interpolated_string_element(&mut self, element: &'a InterpolatedStringElement) {
        self.0.push(Node::Element(element));
    }
}
