//! Makes TypeScript and ES modules ready for Node: types are stripped, the value of the last expression is kept for the
//! driver, and names relative to the file lead to the workspace. Nothing is moved to another line, so that line numbers
//! stay the caller's; for TypeScript a source map says where each line came from.

use crate::depth;
use oxc_allocator::Allocator;
use oxc_ast::ast::{Declaration, ModuleDeclaration, Program, Statement};
use oxc_codegen::{Codegen, CodegenOptions};
use oxc_parser::{Parser, ParserReturn};
use oxc_semantic::SemanticBuilder;
use oxc_span::{GetSpan, SourceType, Span};
use oxc_transformer::{TransformOptions, Transformer};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the engine asks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    code: String,
    /// File name, for the source map.
    name: String,
    typescript: bool,
    /// It is a call of a session, whose driver finds names, imports and the result itself: only types go.
    #[serde(default)]
    session: bool,
    /// Directory to which relative names lead.
    workspace: String,
}

/// The reply: code, or an objection.
#[derive(Serialize, Default)]
struct Answer {
    module: bool,
    code: String,
    error: Option<Objection>,
}

#[derive(Serialize, Debug)]
struct Objection {
    message: String,
    line: Option<u32>,
}

/// The worker: JSON question in, JSON answer out.
pub fn prepare(input: &[u8]) -> Vec<u8> {
    let answer = match serde_json::from_slice::<Question>(input) {
        Ok(question) => answer(&question).unwrap_or_else(|error| Answer {
            error: Some(error),
            ..Answer::default()
        }),
        Err(error) => Answer {
            error: Some(Objection {
                message: error.to_string(),
                line: None,
            }),
            ..Answer::default()
        },
    };
    serde_json::to_vec(&answer).unwrap_or_default()
}

fn answer(question: &Question) -> Result<Answer, Objection> {
    if depth::too_deep(&question.code) {
        return Err(Objection {
            message: "the code is nested more than 1000 levels deep".to_owned(),
            line: None,
        });
    }
    if question.typescript {
        let stripped = strip(question)?;
        let code = if question.session {
            stripped.code
        } else {
            edit(&stripped.code, question)?
        };
        return Ok(Answer {
            module: true,
            code: format!("{code}\n//# sourceMappingURL={}\n", stripped.map),
            error: None,
        });
    }
    let allocator = Allocator::default();
    let as_script = parse(&allocator, &question.code, SourceType::script());
    // The parser leaves it to later stages to object to `import` in a script.
    if as_script.is_ok_and(|script| {
        !script.module_record.has_module_syntax && script.module_record.import_metas.is_empty()
    }) {
        return Ok(Answer {
            module: false,
            code: question.code.clone(),
            error: None,
        });
    }
    Ok(Answer {
        module: true,
        code: edit(&question.code, question)?,
        error: None,
    })
}

fn parse<'a>(
    allocator: &'a Allocator,
    code: &'a str,
    kind: SourceType,
) -> Result<ParserReturn<'a>, Objection> {
    let parsed = Parser::new(allocator, code, kind).parse();
    if let Some(error) = parsed.diagnostics.errors().next() {
        let line = error.labels.first().map(|label| line_of(code, label.offset()));
        return Err(Objection {
            message: error.message.to_string(),
            line,
        });
    }
    if parsed.panicked {
        return Err(Objection {
            message: "it could not be parsed".to_owned(),
            line: None,
        });
    }
    Ok(parsed)
}

fn line_of(code: &str, offset: u32) -> u32 {
    let before = code.as_bytes().get(..offset as usize).unwrap_or(code.as_bytes());
    u32::try_from(before.iter().filter(|byte| **byte == b'\n').count() + 1).unwrap_or(u32::MAX)
}

struct Stripped {
    code: String,
    /// As a data URL.
    map: String,
}

/// TypeScript to JavaScript, with what types alone do not say (`enum`, `namespace`, parameter properties) compiled.
fn strip(question: &Question) -> Result<Stripped, Objection> {
    let allocator = Allocator::default();
    let kind = if question.name.ends_with('x') {
        SourceType::tsx()
    } else {
        SourceType::ts().with_module(true)
    };
    let mut program = parse(&allocator, &question.code, kind)?.program;
    let scoping = SemanticBuilder::new()
        .with_enum_eval(true)
        .build(&program)
        .semantic
        .into_scoping();
    let path = Path::new(&question.workspace).join(&question.name);
    let mut options = TransformOptions::default();
    // What this call imports and does not use, a later one may.
    options.typescript.only_remove_type_imports = question.session;
    let transformed = Transformer::new(&allocator, &path, &options).build_with_scoping(scoping, &mut program);
    if let Some(error) = transformed.diagnostics.errors().next() {
        let line = error
            .labels
            .first()
            .map(|label| line_of(&question.code, label.offset()));
        return Err(Objection {
            message: error.message.to_string(),
            line,
        });
    }
    let options = CodegenOptions {
        source_map_path: Some(path),
        ..CodegenOptions::default()
    };
    let printed = Codegen::new().with_options(options).build(&program);
    let map = printed.map.map(|map| map.to_data_url()).unwrap_or_default();
    Ok(Stripped {
        code: printed.code,
        map,
    })
}

/// A piece of text to put in place of a stretch.
struct Edit {
    span: Span,
    text: String,
}

/// The edits that a module needs, none of which adds or removes a line.
fn edit(code: &str, question: &Question) -> Result<String, Objection> {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, code, SourceType::mjs())?;
    let text = |span: Span| code.get(span.start as usize..span.end as usize).unwrap_or("");
    let names = serde_json::to_string(&declared(&parsed.program)).unwrap_or_else(|_| "[]".to_owned());
    let begin = parsed.program.hashbang.as_ref().map_or(0, |line| line.span.end);
    let separator = if begin > 0 { "\n" } else { "" };
    let prologue = format!("{separator}globalThis[Symbol.for('ringfence.names')] = {names};");
    // After a hashbang the rest of its own line break follows; the prologue takes that place.
    let end = if begin > 0 && code[begin as usize..].starts_with('\n') {
        begin + 1
    } else {
        begin
    };
    let mut edits = vec![Edit {
        span: Span::new(begin, end),
        text: prologue,
    }];
    for (name, requests) in &parsed.module_record.requested_modules {
        if let Some(url) = relative(name.as_str(), &question.workspace) {
            edits.extend(requests.iter().map(|request| Edit {
                span: request.span,
                text: quoted(&url),
            }));
        }
    }
    for import in &parsed.module_record.dynamic_imports {
        let span = import.module_request;
        // Known only when it runs: the driver's `resolve` decides.
        let resolved = format!("globalThis[Symbol.for('ringfence.meta')].resolve({})", text(span));
        edits.push(Edit { span, text: resolved });
    }
    for span in &parsed.module_record.import_metas {
        edits.push(Edit {
            span: *span,
            text: "globalThis[Symbol.for('ringfence.meta')]".to_owned(),
        });
    }
    if let Some(Statement::ExpressionStatement(last)) = parsed.program.body.last() {
        let span = last.expression.span();
        edits.push(Edit {
            span: Span::empty(span.start),
            text: "globalThis[Symbol.for('ringfence.result')] = (".to_owned(),
        });
        edits.push(Edit {
            span: Span::empty(span.end),
            text: ")".to_owned(),
        });
    }
    Ok(apply(code, edits))
}

fn relative(name: &str, workspace: &str) -> Option<String> {
    let leads_out = name.starts_with("./") || name.starts_with("../");
    leads_out.then(|| format!("file://{workspace}/{name}"))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

/// In the order of their places; of two insertions at one place the earlier pushed comes first.
fn apply(code: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut result = String::with_capacity(code.len() + 256);
    let mut at = 0;
    for edit in edits {
        let (start, end) = (edit.span.start as usize, edit.span.end as usize);
        if start < at {
            // Inside a stretch that is replaced already (an import inside an import's argument); left as it is.
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

/// Names that a module declares at its top.
fn declared(program: &Program<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for statement in &program.body {
        let declaration = match statement {
            Statement::ExportDeclaration(export) => Some(&export.declaration),
            other => other.as_declaration(),
        };
        if let Some(declaration) = declaration {
            names_of(declaration, &mut names);
        }
        if let Some(ModuleDeclaration::ExportDefaultDeclaration(_)) = statement.as_module_declaration() {
            names.push("default".to_owned());
        }
    }
    names.truncate(NAMES_MAX);
    names
}

fn names_of(declaration: &Declaration<'_>, names: &mut Vec<String>) {
    match declaration {
        Declaration::VariableDeclaration(variables) => {
            for variable in &variables.declarations {
                names.extend(
                    variable
                        .id
                        .get_binding_identifiers()
                        .iter()
                        .map(|id| id.name.to_string()),
                );
            }
        }
        Declaration::FunctionDeclaration(function) => {
            names.extend(function.id.iter().map(|id| id.name.to_string()))
        }
        Declaration::ClassDeclaration(class) => names.extend(class.id.iter().map(|id| id.name.to_string())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(code: &str, name: &str) -> Result<Answer, Objection> {
        answer(&Question {
            code: code.to_owned(),
            name: name.to_owned(),
            typescript: name.ends_with(".ts"),
            session: false,
            workspace: "/workspace".to_owned(),
        })
    }

    #[test]
    fn scripts_stay_as_they_are_and_modules_are_recognised() {
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
    }

    #[test]
    fn line_numbers_stay_the_callers() {
        let code = "#!/usr/bin/env node\nimport a from './a.mjs';\nimport b from 'b';\nconst c = 1;\nconst {d, e: [f]} = g;\nc + 1;\n";
        let answer = ask(code, "main.js").unwrap();
        assert_eq!(
            answer.code.lines().count(),
            code.lines().count() + usize::from(false)
        );
        assert!(
            answer
                .code
                .lines()
                .nth(1)
                .unwrap()
                .contains("\"file:///workspace/./a.mjs\"")
        );
        assert!(answer.code.lines().nth(2).unwrap().contains("from 'b'"));
        assert!(answer.code.contains(r#"["c","d","f"]"#));
        assert!(answer.code.lines().nth(5).unwrap().contains("= (c + 1)"));
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
    fn of_a_sessions_call_only_the_types_go() {
        let code =
            "import fs from 'fs';\nimport type { Stats } from 'fs';\nlet n: number = 1;\nawait import('./x')";
        let question = Question {
            code: code.to_owned(),
            name: "call-1.ts".to_owned(),
            typescript: true,
            session: true,
            workspace: "/workspace".to_owned(),
        };
        let told = answer(&question).unwrap().code;
        let lines: Vec<&str> = told.lines().take(3).collect();
        assert_eq!(
            lines,
            ["import fs from \"fs\";", "let n = 1;", "await import(\"./x\");"],
            "{told}"
        );
    }

    #[test]
    fn an_objection_names_the_line() {
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
}
