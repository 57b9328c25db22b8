//! Prepares TypeScript and ES modules for Node: strips types, keeps the value of the last expression for the driver,
//! and resolves relative names to the workspace. Edits move no line; for TypeScript a source map gives the origin.

use crate::verdict::Lines;
use oxc_allocator::Allocator;
use oxc_ast::ast::{
    Declaration, ImportDeclaration, ImportDeclarationSpecifier, ModuleDeclaration, Program, Statement,
};
use oxc_codegen::{Codegen, CodegenOptions};
use oxc_diagnostics::Diagnostics;
use oxc_parser::{Parser, ParserReturn};
use oxc_semantic::SemanticBuilder;
use oxc_span::{GetSpan, SourceType, Span};
use oxc_transformer::{TransformOptions, Transformer};
use serde::{Deserialize, Serialize};
use std::path::Path;
use url::Url;

/// Request of the engine.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleQuestion {
    /// The caller's code.
    pub code: String,
    /// File name, for the source map.
    pub name: String,
    /// TypeScript rather than JavaScript.
    pub typescript: bool,
    /// A call of a session, whose driver finds names and the result itself: types are stripped, imports become calls.
    pub session: bool,
    /// Directory to which relative names are resolved.
    pub workspace: String,
}

/// The answer: code, or an error.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ModuleAnswer {
    /// The code is an ES module.
    pub module: bool,
    /// Code for Node to run.
    pub code: String,
    /// Error of the parser or the compiler; then there is no code.
    pub error: Option<Objection>,
}

/// An error of the parser or the compiler, with its place.
#[derive(Serialize, Deserialize, Debug)]
pub struct Objection {
    /// The parser's own message.
    pub message: String,
    /// Line number, from 1.
    pub line: Option<u32>,
}

impl Objection {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: None,
        }
    }

    fn check(code: &str, diagnostics: &Diagnostics) -> Result<(), Self> {
        let Some(error) = diagnostics.errors().next() else {
            return Ok(());
        };
        let line_of = |offset: u32| Lines::of(code).position(offset as usize).0;
        let line = error.labels.first().map(|label| line_of(label.offset()));
        let message = error.message.to_string();
        Err(Self { message, line })
    }
}

/// Entry point of the worker: JSON question in, JSON answer out.
pub fn prepare(input: &[u8]) -> Vec<u8> {
    let question = serde_json::from_slice(input).map_err(|error| Objection::new(error.to_string()));
    let reply = question.and_then(|question| answer(&question));
    let reply = reply.unwrap_or_else(|error| ModuleAnswer {
        error: Some(error),
        ..ModuleAnswer::default()
    });
    serde_json::to_vec(&reply).unwrap_or_default()
}

fn answer(question: &ModuleQuestion) -> Result<ModuleAnswer, Objection> {
    let (module, code) = if question.typescript {
        let (stripped, map) = strip(question)?;
        let code = edit(&stripped, question)?;
        (true, format!("{code}\n//# sourceMappingURL={map}\n"))
    } else if !question.session && is_script(&question.code) {
        (false, question.code.clone())
    } else {
        (true, edit(&question.code, question)?)
    };
    Ok(ModuleAnswer {
        module,
        code,
        error: None,
    })
}

/// Length of the keyword `import`.
const KEYWORD_BYTES: u32 = 6;
/// Deeper than any code written by a person; the parser's stack holds several times as much.
const DEPTH_MAX: usize = 1000;

/// True if the brackets of a text are nested more deeply than a parser should follow. Strings and comments are not
/// recognized (that would need the parser), so the bound is generous.
fn too_deep(code: &str) -> bool {
    let mut depth = 0_usize;
    code.bytes().any(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEPTH_MAX
    })
}

/// True for a script without module syntax, which the parser accepts and leaves to later stages to refuse.
fn is_script(code: &str) -> bool {
    let allocator = Allocator::default();
    let record = parse(&allocator, code, SourceType::script()).map(|script| script.module_record);
    record.is_ok_and(|record| !record.has_module_syntax && record.import_metas.is_empty())
}

fn parse<'a>(
    allocator: &'a Allocator,
    code: &'a str,
    kind: SourceType,
) -> Result<ParserReturn<'a>, Objection> {
    if too_deep(code) {
        return Err(Objection::new("the code is nested more than 1000 levels deep"));
    }
    let parsed = Parser::new(allocator, code, kind).parse();
    Objection::check(code, &parsed.diagnostics)?;
    match parsed.panicked {
        true => Err(Objection::new("it could not be parsed")),
        false => Ok(parsed),
    }
}

/// Compiles TypeScript, also `enum`, `namespace` and parameter properties; returns a source map as a data URL.
fn strip(question: &ModuleQuestion) -> Result<(String, String), Objection> {
    let allocator = Allocator::default();
    let kind = match question.name.ends_with('x') {
        true => SourceType::tsx(),
        false => SourceType::ts().with_module(true),
    };
    let mut program = parse(&allocator, &question.code, kind)?.program;
    let path = Path::new(&question.workspace).join(&question.name);
    let mut options = TransformOptions::default();
    // A later call may use an import that this one does not.
    options.typescript.only_remove_type_imports = question.session;
    let diagnostics = strip_types(&allocator, &mut program, &path, &options);
    Objection::check(&question.code, &diagnostics)?;
    let options = CodegenOptions {
        source_map_path: Some(path),
        ..CodegenOptions::default()
    };
    let printed = Codegen::new().with_options(options).build(&program);
    let map = printed.map.map(|map| map.to_data_url()).unwrap_or_default();
    Ok((printed.code, map))
}

pub(crate) fn strip_types<'a>(
    allocator: &'a Allocator,
    program: &mut Program<'a>,
    path: &Path,
    options: &TransformOptions,
) -> Diagnostics {
    let built = SemanticBuilder::new().with_enum_eval(true).build(program);
    let scoping = built.semantic.into_scoping();
    let transformer = Transformer::new(allocator, path, options);
    transformer.build_with_scoping(scoping, program).diagnostics
}

struct Edit {
    span: Span,
    text: String,
}

/// Makes the edits that a module or a call needs; none of them adds or removes a line.
fn edit(code: &str, question: &ModuleQuestion) -> Result<String, Objection> {
    let allocator = Allocator::default();
    let parsed = match parse(&allocator, code, SourceType::mjs()) {
        // The interpreter reports what it cannot run.
        Err(_) if question.session => return Ok(code.to_owned()),
        parsed => parsed?,
    };
    let mut edits = match question.session {
        true => imports_as_calls(code, &parsed.program).map_err(|objection| Objection {
            // The code of TypeScript has other lines by now.
            line: objection.line.filter(|_| !question.typescript),
            ..objection
        })?,
        false => Vec::new(),
    };
    let import = match question.session {
        true => "__import__",
        false => "globalThis[Symbol.for('ringfence.import')]",
    };
    edits.extend(parsed.module_record.dynamic_imports.iter().map(|call| Edit {
        span: Span::sized(call.span.start, KEYWORD_BYTES),
        text: import.to_owned(),
    }));
    if question.session {
        return Ok(apply(code, edits));
    }
    let names = quoted(&declared(&parsed.program));
    let begin = parsed.program.hashbang.as_ref().map_or(0, |line| line.span.end);
    let separator = if begin > 0 { "\n" } else { "" };
    // The prologue replaces the line break after a hashbang.
    let is_line = begin > 0 && code[begin as usize..].starts_with('\n');
    let mut add = |span: Span, text: String| edits.push(Edit { span, text });
    add(
        Span::new(begin, begin + u32::from(is_line)),
        format!("{separator}globalThis[Symbol.for('ringfence.names')] = {names};"),
    );
    for (name, requests) in &parsed.module_record.requested_modules {
        if name.starts_with("./") || name.starts_with("../") {
            let url = quoted(&url_of(&question.workspace, name));
            requests.iter().for_each(|request| add(request.span, url.clone()));
        }
    }
    for span in &parsed.module_record.import_metas {
        add(*span, "globalThis[Symbol.for('ringfence.meta')]".to_owned());
    }
    if let Some(Statement::ExpressionStatement(last)) = parsed.program.body.last() {
        let span = last.expression.span();
        let begin = "globalThis[Symbol.for('ringfence.result')] = (".to_owned();
        add(Span::empty(span.start), begin);
        add(Span::empty(span.end), ")".to_owned());
    }
    Ok(apply(code, edits))
}

/// Returns the URL of a file of the workspace, with `#`, `?` and `%` in its path encoded.
fn url_of(workspace: &str, name: &str) -> String {
    let workspace = Url::from_directory_path(workspace).ok();
    let file = workspace.and_then(|workspace| workspace.join(name).ok());
    file.map_or_else(|| name.to_owned(), String::from)
}

/// Turns the import declarations of a session's call into calls of its driver's function, and refuses exports.
fn imports_as_calls(code: &str, program: &Program<'_>) -> Result<Vec<Edit>, Objection> {
    let mut edits = Vec::new();
    for declaration in program.body.iter().filter_map(Statement::as_module_declaration) {
        let span = declaration.span();
        let mut text = match declaration {
            ModuleDeclaration::ImportDeclaration(import) => import_as_call(code, import),
            // The compiler of TypeScript leaves `export {}` in place of exported types.
            ModuleDeclaration::ExportNamedDeclaration(export) if export.specifiers.is_empty() => {
                String::new()
            }
            _ => {
                let message = "a call of a session cannot export; its variables stay without `export`";
                let line = Lines::of(code).position(span.start as usize).0;
                return Err(Objection {
                    message: message.to_owned(),
                    line: Some(line),
                });
            }
        };
        text.extend(span.source_text(code).matches('\n'));
        edits.push(Edit { span, text });
    }
    Ok(edits)
}

fn import_as_call(code: &str, import: &ImportDeclaration<'_>) -> String {
    let (mut names, mut targets) = (Vec::new(), Vec::new());
    for specifier in import.specifiers.iter().flatten() {
        let local = specifier.local().name;
        match specifier {
            ImportDeclarationSpecifier::ImportSpecifier(one) => {
                names.push(format!("{}: {local}", one.imported.span().source_text(code)));
            }
            ImportDeclarationSpecifier::ImportDefaultSpecifier(_) => names.push(format!("default: {local}")),
            ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => targets.push(local.to_string()),
        }
    }
    if !names.is_empty() {
        targets.push(format!("{{ {} }}", names.join(", ")));
    }
    let entries = import.with_clause.iter().flat_map(|with| &with.with_entries);
    let entries: Vec<&str> = entries.map(|entry| entry.span.source_text(code)).collect();
    let from = import.source.span.source_text(code);
    let call = format!(
        "await __import__({from}, {{ with: {{ {} }} }});",
        entries.join(", ")
    );
    match targets.is_empty() {
        true => format!("void {call}"),
        false => targets
            .iter()
            .map(|target| format!("const {target} = {call}"))
            .collect(),
    }
}

fn quoted<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Applies the edits by position; of two insertions at one position, the one added first comes first.
fn apply(code: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut result = String::with_capacity(code.len() + 256);
    let mut at = 0;
    for edit in edits {
        let (start, end) = (edit.span.start as usize, edit.span.end as usize);
        if start < at {
            // The parser lists what it has read twice, such as `(a = import('b'))`, twice.
            continue;
        }
        result.push_str(&code[at..start]);
        result.push_str(&edit.text);
        at = end;
    }
    result.push_str(&code[at..]);
    result
}

const NAMES_MAX: usize = 1000;

/// Returns the names that a module declares at its top level.
fn declared(program: &Program<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for statement in &program.body {
        let declaration = match statement {
            Statement::ExportDeclaration(export) => Some(&export.declaration),
            other => other.as_declaration(),
        };
        match declaration {
            Some(Declaration::VariableDeclaration(variables)) => {
                let variables = variables.declarations.iter();
                let ids = variables.flat_map(|one| one.id.get_binding_identifiers());
                names.extend(ids.map(|id| id.name.to_string()));
            }
            other => names.extend(other.and_then(Declaration::id).map(|id| id.name.to_string())),
        }
        if let Some(ModuleDeclaration::ExportDefaultDeclaration(_)) = statement.as_module_declaration() {
            names.push("default".to_owned());
        }
    }
    names.truncate(NAMES_MAX);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(code: &str, name: &str) -> Result<ModuleAnswer, Objection> {
        answer(&ModuleQuestion {
            code: code.to_owned(),
            name: name.to_owned(),
            typescript: name.ends_with(".ts"),
            session: false,
            workspace: "/workspace".to_owned(),
        })
    }

    #[test]
    fn url_of_a_workspace_encodes_its_marks() {
        assert_eq!(
            url_of("/a#b?c%d", "./x.mjs?v=1"),
            "file:///a%23b%3Fc%25d/x.mjs?v=1"
        );
    }

    #[test]
    fn scripts_are_unchanged_and_modules_are_recognized() {
        let check = |code: &str, module: bool| {
            let answer = ask(code, "main.js").unwrap();
            assert_eq!(answer.module, module, "{code}");
            assert!(module || answer.code == code);
        };
        check("const a = require('a'); a + 1", false);
        check("import('x')", false);
        check("const s = 'import x from y'; s", false);
        check("import x from 'y'; x", true);
        check("await 1", true);
        check("export const a = 1", true);
        check("import.meta.url", true);
        check(
            "const o = (u = import.meta.url), p = () => (m = import('x'))",
            true,
        );
    }

    #[test]
    fn line_numbers_are_unchanged() {
        let code = "#!/usr/bin/env node\nimport a from './a.mjs';\nimport b from 'b';\nconst c = 1;\nconst {d, e: [f]} = g;\nc + 1;\n";
        let answer = ask(code, "main.js").unwrap();
        let lines: Vec<&str> = answer.code.lines().collect();
        assert_eq!(lines.len(), code.lines().count());
        assert!(lines[1].contains("\"file:///workspace/a.mjs\""));
        assert!(lines[2].contains("from 'b'"));
        assert!(answer.code.contains(r#"["c","d","f"]"#));
        assert!(lines[5].contains("= (c + 1)"));
    }

    #[test]
    fn types_enums_and_namespaces_are_compiled() {
        let code = "enum Color { Red = 1, Blue }\ninterface P { x: number }\nclass C { constructor(private y: number) {} get z() { return this.y } }\nconst p: P = { x: Color.Blue };\nnew C(p.x as number).z";
        let answer = ask(code, "main.ts").unwrap();
        assert!(
            answer.module
                && !answer.code.contains("interface")
                && answer.code.contains("sourceMappingURL=data:")
        );
    }

    #[test]
    fn imports_of_a_session_call_become_calls() {
        let call = |code: &str, typescript: bool| {
            answer(&ModuleQuestion {
                code: code.to_owned(),
                name: "call-1".to_owned(),
                typescript,
                session: true,
                workspace: "/workspace".to_owned(),
            })
        };
        let check = |code: &str, typescript: bool, expected: &[&str]| {
            let code = call(code, typescript).unwrap().code;
            let lines: Vec<&str> = code.lines().take(expected.len()).collect();
            assert_eq!(lines, expected, "{code}");
        };
        let typed =
            "import a from 'a';\nimport type { B } from 'b';\nlet n: number = 1;\nawait import('./x')";
        let from = |name: &str| format!("await __import__(\"{name}\", {{ with: {{  }} }});");
        check(
            typed,
            true,
            &[
                &format!("const {{ default: a }} = {}", from("a")),
                "let n = 1;",
                "await __import__(\"./x\");",
            ],
        );
        check("export type A = 1;\n1", true, &["1;"]);
        check(
            "import * as a from \"a\"; import \"b\"\nimport {\n  c as d,\n} from \"c\"\n'import(', import(import('e'))",
            false,
            &[
                &format!("const a = {} void {}", from("a"), from("b")),
                &format!("const {{ c: d }} = {}", from("c")),
                "",
                "",
                "'import(', __import__(__import__('e'))",
            ],
        );
        check("import x from;", false, &["import x from;"]);
        check("(m = import('a'))", false, &["(m = __import__('a'))"]);
        let error = |code: &str| call(code, false).err().unwrap();
        assert_eq!(error("1\nexport const a = 1").line, Some(2));
        assert!(error("export { a }; const a = 1").message.contains("export"));
    }

    #[test]
    fn error_names_the_line() {
        assert_eq!(
            ask("const a: number = 1;\nlet b = ;\n", "main.ts")
                .err()
                .unwrap()
                .line,
            Some(2)
        );
        assert!(ask(&"(".repeat(100_000), "main.ts").is_err());
        assert!(ask("\u{0}\u{ffff}import", "main.js").is_err());
    }

    #[test]
    fn bracket_depth_is_counted() {
        assert!(!too_deep("f({a: [1, 2]})"));
        assert!(!too_deep(&"()".repeat(1_000_000)));
        assert!(too_deep(&"(".repeat(1001)));
        assert!(!too_deep(&format!("{}{}", "(".repeat(1000), ")".repeat(1000))));
    }
}
