//! Modules that the profile does not have: imported, or reached as an attribute, by a string or by a star import.

use super::{
    Step, Walk,
    attributes::Access,
    imports::{Allowed, Imports},
};
use crate::{
    python::{resolve::Meaning, table},
    registry::profile::{IMPORT, MODULE_ATTRIBUTE},
    rule::Rule,
};
use ruff_python_ast::{Alias, Expr, ExprContext, ExprName, StmtImport, StmtImportFrom};
use ruff_text_size::{Ranged, TextRange};

impl<'a> Walk<'a, '_, '_> {
    fn refuse_module(&mut self, rule: &'static Rule, path: &str, range: TextRange, what: String) {
        let finding = self.imports.refused(rule, path, what, range);
        self.findings.push(finding);
    }

    /// Reports a module that is not allowed and is reached without importing it.
    pub(super) fn report_reached_module(&mut self, range: TextRange, path: &str) {
        let written = self.quote(range);
        let what = match written == path {
            true => format!("`{path}` is reached as an attribute"),
            false => format!("`{written}` is `{path}`, which is not allowed"),
        };
        self.refuse_module(&MODULE_ATTRIBUTE, path, range, what);
    }

    pub(super) fn check_name_path(&mut self, name: &'a ExprName, path: &str, next: Option<&Expr>) {
        let is_way = next.is_some_and(Expr::is_attribute_expr);
        let reached = match self.imports.allow(path) {
            Allowed::Yes => false,
            Allowed::AsParent => !is_way,
            // `sys` after `from json.tool import *`.
            Allowed::No => self.resolver.is_from_star(name),
        };
        if reached {
            self.report_reached_module(name.range, path);
        }
    }

    pub(super) fn check_part(&mut self, step: &Step<'a, '_>, path: &str, rule: &mut Option<&'static str>) {
        let known = *rule == Some(MODULE_ATTRIBUTE.id) || path.starts_with("builtins.");
        if known || path.contains('(') {
            return;
        }
        let reached = match self.imports.allow(path) {
            Allowed::Yes => false,
            Allowed::AsParent => !step.next.is_some_and(Expr::is_attribute_expr),
            // A module that is not allowed is already reported where it is imported or reached.
            Allowed::No => match step.left_meaning {
                Meaning::Path(left) if !left.contains('(') => self.imports.allow(left) != Allowed::No,
                _ => true,
            },
        };
        if !reached {
            return;
        }
        *rule = Some(MODULE_ATTRIBUTE.id);
        let by_text = match step.left_meaning {
            Meaning::Builtin(name) => *name == "__import__",
            Meaning::Path(path) => path.starts_with("importlib."),
            _ => false,
        };
        match by_text && step.part.is_call_expr() {
            true => {
                let what = format!("`{}` imports `{path}`", self.quote(step.part.range()));
                self.refuse_module(&IMPORT, path, step.part.range(), what);
            }
            false => self.report_reached_module(step.part.range(), path),
        }
    }

    pub(super) fn import(&mut self, import: &'a StmtImport) {
        for alias in &import.names {
            let module = alias.name.as_str();
            self.private_module(module, alias.range);
            if self.imports.allow(module) != Allowed::Yes {
                self.refuse_module(&IMPORT, module, alias.range, format!("`{module}` is imported"));
            }
        }
    }

    pub(super) fn import_from(&mut self, import: &'a StmtImportFrom) {
        let module = import.module.as_deref().unwrap_or_default();
        if import.level > 0 {
            let local = import.names.iter().all(|alias| match module {
                "" => self.imports.is_local(alias.name.as_str()),
                _ => self.imports.is_local(module),
            });
            if !local {
                let written = self.quote(import.range);
                self.findings.push(Imports::relative(&written, import));
            }
            return;
        }
        let allowed = self.imports.allow(module);
        if allowed == Allowed::No {
            self.refuse_module(&IMPORT, module, import.range, format!("`{module}` is imported"));
        }
        for alias in &import.names {
            self.import_name(module, alias, allowed);
        }
    }

    fn import_name(&mut self, module: &'a str, alias: &'a Alias, allowed: Allowed) {
        let name = alias.name.as_str();
        let of = Meaning::path(module);
        if module != "__future__" {
            self.check_attribute(&alias.name, ExprContext::Load, Access::Other);
            self.private_attribute(name, &of, alias.name.range());
        }
        if name == "*" {
            let what = format!("everything of `{module}` is imported");
            if let Some((group, known)) = table::in_module(module) {
                let what = format!("{what}, and `{known}` {}", group.does);
                self.report(group.rule, group.weight, alias.range, what);
            }
            if allowed == Allowed::AsParent {
                self.refuse_module(&IMPORT, module, alias.range, what);
            }
            return;
        }
        let whole = format!("{module}.{name}");
        let denoted = self.resolver.attribute(&of, name);
        let denoted = denoted.as_path().unwrap_or(&whole);
        if allowed == Allowed::No
            || self.imports.allow(denoted) == Allowed::Yes
            || denoted.starts_with("builtins.")
        {
            return;
        }
        if denoted == whole {
            self.refuse_module(&IMPORT, denoted, alias.range, format!("`{whole}` is imported"));
        } else {
            let what = format!("`{name}` of `{module}` is `{denoted}`, which is not allowed");
            self.refuse_module(&MODULE_ATTRIBUTE, denoted, alias.range, what);
        }
    }
}
