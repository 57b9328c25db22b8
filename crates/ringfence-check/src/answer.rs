//! Dispatches a question to the checker of its language or data format.

use crate::{
    Answer, CodeQuestion, Question, javascript, python, question::Unusable, shell, table, value, verdict,
};
use ringfence_types::{Language, Rules};

/// Answers a question about the body.
pub fn answer(question: &Question, body: &[u8]) -> Answer {
    match question {
        Question::Code(question) => match std::str::from_utf8(body) {
            Ok(code) => code_answer(question, code),
            Err(_) => Unusable::new("the code is not UTF-8.", "Send text.").into(),
        },
        Question::Json(question) => value::check(question, body).map_or_else(Answer::from, Answer::Json),
        Question::Csv(question) => table::check(question, body).map_or_else(Answer::from, Answer::Csv),
    }
}

fn code_answer(question: &CodeQuestion, code: &str) -> Answer {
    let setting = match question.is_fragment {
        true => javascript::Setting::Call,
        false => javascript::Setting::Program,
    };
    let checked = match question.language {
        Language::Python => python::check(code, question),
        Language::Node | Language::Typescript => javascript::check(code, question.language, setting),
        Language::Shell => shell::check(code),
    };
    Answer::Code(Box::new(verdict::conclude(code, checked)))
}

/// Entry point of the worker: a JSON head and a body in, a JSON answer out.
pub fn answer_frame(head: &[u8], body: &[u8]) -> Vec<u8> {
    let answer = match serde_json::from_slice(head) {
        Ok(question) => answer(&question, body),
        Err(error) => {
            let message = format!("the question cannot be read: {error}.");
            Unusable::new(message, "Report this.").into()
        }
    };
    serde_json::to_vec(&answer).unwrap_or_default()
}

/// Initializes the tables that every question needs, in the process whose forks answer the questions.
pub fn warm_up() {
    use Language::{Node, Python, Shell, Typescript};
    // A call in each language, so that the lists in which calls are looked up are loaded.
    for (language, call) in [
        (Python, "import os\nos.system(x)"),
        (Node, "eval(x)"),
        (Typescript, "eval(x)"),
        (Shell, "env sudo ls"),
    ] {
        let question = Question::Code(CodeQuestion {
            auto_fix: true,
            ..CodeQuestion::of(language, Rules::unrestricted())
        });
        // Nested so deeply that the parser queries the size of the stack, which a fork may not do.
        let text = format!("{}x{}\n{call}\n", "(".repeat(64), ")".repeat(64));
        drop(serde_json::to_vec(&answer(&question, text.as_bytes())));
    }
}
