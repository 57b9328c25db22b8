//! temporary stand-in by the lead: replace this whole file
use ringfence_types::{Argument, Language, ProgramError};
/// x
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "x")]
pub struct ProgramReport { pub result: Option<serde_json::Value>, pub result_repr: Option<String>, pub variables: Vec<String>, pub error: Option<ProgramError> }
pub(crate) struct Launch { pub argv: Vec<String>, pub env: Vec<(String, String)>, pub report_fd: bool }
pub(crate) fn launch(language: Language, interpreter: &str, script: &str, _module: bool, args: &[Argument]) -> Launch {
    let mut argv = vec![interpreter.to_owned(), script.to_owned()];
    argv.extend(args.iter().map(|a| a.as_str().to_owned()));
    let _ = language;
    Launch { argv, env: vec![], report_fd: true }
}
/// x
pub fn read_report(_b: &[u8]) -> ProgramReport { ProgramReport::default() }
pub(crate) fn needs_preparation(_l: Language, _c: &str, _n: &str) -> bool { false }
