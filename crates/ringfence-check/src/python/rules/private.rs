//! Private attributes (`x._name`) of what is not the program's own, of which the profile `strict` speaks: what a module
//! of the library keeps for itself may reach what a program may not.

use super::{
    BUILTINS_WRITE, PRIVATE_ATTRIBUTE, REFLECTION, Weight,
    attributes::is_dunder,
    private_names::{is_from_a_library, is_of_a_basic_module, is_of_a_library, is_private, leads_far},
    walk::Walk,
};
use crate::python::meaning::Meaning;
use ringfence_types::Profile;
use ruff_python_ast::{self as ast, ExprContext};
use ruff_text_size::{Ranged, TextRange};

impl<'a> Walk<'a, '_, '_> {
    /// `x._name`, with what `x` denotes.
    pub(super) fn private_attribute(&mut self, name: &str, of: &Meaning<'a>, range: TextRange) {
        if !is_private(name) {
            return;
        }
        let Some(own) = &self.strict.own else { return };
        let of_library = match of {
            Meaning::Path(path) if is_of_a_library(path) && !self.imports.is_own(path) => {
                Some(path.to_string())
            }
            Meaning::Builtin(builtin) => Some((*builtin).to_owned()),
            _ => None,
        };
        let is_own_module = of
            .as_path()
            .is_some_and(|path| !is_from_a_library(path) || self.imports.is_own(path));
        if !leads_far(name) && of_library.is_none() && (is_own_module || own.has(name)) {
            return;
        }
        let what = match of_library {
            Some(path) => format!("`{name}` is a private part of `{path}`"),
            None if leads_far(name) => format!("`{name}` is a private part of the standard library"),
            None => format!("`{name}` is a private attribute of something that is not the program's own"),
        };
        self.say(&PRIVATE_ATTRIBUTE, Weight::STRICT_ERROR, range, what);
    }

    /// A text that is such a name: it may be on its way to `type` or `getattr`.
    pub(super) fn private_text(&mut self, text: &str, range: TextRange) {
        if self.strict.own.is_some() && leads_far(text) {
            let what = format!("`'{text}'` names a private part of the standard library");
            self.say(&PRIVATE_ATTRIBUTE, Weight::STRICT_ERROR, range, what);
        }
    }

    /// Bodies of classes that bind what only the library has a use for.
    pub(super) fn private_names_taken(&mut self) {
        let taken = self.strict.own.as_mut().map(|own| std::mem::take(&mut own.taken));
        for (name, range) in taken.unwrap_or_default() {
            let (rule, whose) = match is_dunder(name) {
                true => (&REFLECTION, "of the interpreter's own"),
                false => (&PRIVATE_ATTRIBUTE, "of the standard library"),
            };
            let what = format!("`{name}` takes the place of a private part {whose}");
            self.say(rule, Weight::STRICT_ERROR, range, what);
        }
    }

    /// `from module import _name`.
    pub(super) fn private_import(&mut self, module: &str, name: &ast::Identifier) {
        self.private_attribute(name.as_str(), &Meaning::path(module), name.range());
    }

    /// `import package._module`.
    pub(super) fn private_module(&mut self, module: &str, range: TextRange) {
        let mut of = String::new();
        for part in module.split('.') {
            if !of.is_empty() {
                self.private_attribute(part, &Meaning::path(&of), range);
                of.push('.');
            }
            of.push_str(part);
        }
    }

    /// `contextlib.setattr = f`: a name that the module's own code then finds.
    pub(super) fn module_changed(&mut self, attribute: &'a ast::ExprAttribute, of: &Meaning<'a>) {
        if attribute.ctx != ExprContext::Load {
            self.name_of_module_changed(of, attribute.range);
        }
    }

    /// `setattr(contextlib, 'setattr', f)`.
    pub(super) fn name_of_module_changed(&mut self, of: &Meaning<'a>, range: TextRange) {
        let Some(path) = of.as_path() else { return };
        if self.profile != Profile::Strict || !is_of_a_basic_module(path) || self.imports.is_own(path) {
            return;
        }
        let what = format!("`{}` changes a name of `{path}`", self.quote(range));
        self.say(&BUILTINS_WRITE, Weight::STRICT_ERROR, range, what);
    }
}
