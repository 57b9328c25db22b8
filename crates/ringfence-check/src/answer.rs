//! Answers a question in the language that it is about.

use crate::{
    Answer, CodeQuestion, Question, javascript, python, question::Unusable, shell, table, value, verdict,
};
use ringfence_types::{Language, Rules};

/// The answer to a question.
pub fn answer(question: &Question, body: &[u8]) -> Answer {
    match question {
        Question::Code(asked) => match std::str::from_utf8(body) {
            Ok(code) => code_answer(asked, code),
            Err(_) => Unusable::new("the code is not UTF-8.", "Send text.").into(),
        },
        Question::Json(asked) => value::check(asked, body).map_or_else(Answer::from, Answer::Json),
        Question::Csv(asked) => table::check(asked, body).map_or_else(Answer::from, Answer::Csv),
    }
}

fn code_answer(asked: &CodeQuestion, code: &str) -> Answer {
    let setting = match asked.is_fragment {
        true => javascript::Setting::Call,
        false => javascript::Setting::Program,
    };
    let checked = match asked.language {
        Language::Python => python::check(code, asked),
        Language::Node | Language::Typescript => javascript::check(code, asked.language, setting),
        Language::Shell => shell::check(code),
    };
    Answer::Code(Box::new(verdict::conclude(code, checked)))
}

/// The worker: a head and a body in, an answer in JSON out.
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

/// Makes once what every question needs, in the process whose forks answer them.
pub fn warm_up() {
    use Language::{Node, Python, Shell, Typescript};
    // A call of each, so that the lists that calls are looked up in are read.
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
        // Nested so deep that the parser asks how much stack there is, which a fork may not.
        let text = format!("{}x{}\n{call}\n", "(".repeat(64), ")".repeat(64));
        let told = answer(&question, text.as_bytes());
        drop(serde_json::to_vec(&told));
    }
}
