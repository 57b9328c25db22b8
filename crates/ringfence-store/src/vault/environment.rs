//! Secrets in environment variables of the operator. The front end reads the variables; this module splits their names,
//! so that each variable belongs to exactly one namespace.

use super::{
    contents::{Contents, StoredSecret},
    error::{VariableError, VaultError},
    value::SecretValue,
};
use ringfence_types::{EnvName, Namespace};
use std::{collections::BTreeMap, sync::Arc};

/// Prefixes of such variables; the second is that of an older front end.
pub const VARIABLE_PREFIXES: [&str; 2] = ["RINGFENCE_SECRET_", "SANDBOXMCP_SECRET_"];

const SHOWN_CHARS_MAX: usize = 80;

/// Splits `RINGFENCE_SECRET_{NAMESPACE}_{KEY}`. The namespace ends at the first `_` and is converted from upper to
/// lower case: `RINGFENCE_SECRET_A_B_C` is `B_C` of `a`, never `C` of `a_b`.
pub fn split_variable(variable: &str) -> Result<(Namespace, EnvName), VariableError> {
    let mut prefixes = VARIABLE_PREFIXES.iter();
    let rest = prefixes.find_map(|prefix| variable.strip_prefix(prefix));
    let rest = rest.ok_or(VariableError::Prefix)?;
    let (namespace, key) = rest.split_once('_').ok_or(VariableError::Key)?;
    // Lower case is refused: `a` and `A` would be the same namespace.
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if !namespace.bytes().all(is_upper) {
        return Err(VariableError::Namespace);
    }
    let namespace =
        Namespace::try_from(namespace.to_ascii_lowercase()).map_err(|_| VariableError::Namespace)?;
    let key = EnvName::try_from(key.to_owned()).map_err(|_| VariableError::Key)?;
    Ok((namespace, key))
}

pub(super) fn serves(namespace: &Namespace) -> bool {
    let served = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    namespace.as_str().bytes().all(served)
}

/// Collects all variables or fails: a misspelled variable is an error, not a missing secret.
pub(super) fn collect(variables: Vec<(String, Arc<SecretValue>)>) -> Result<Contents, VaultError> {
    let mut contents = Contents::default();
    let mut from: BTreeMap<(Namespace, EnvName), String> = BTreeMap::new();
    for (variable, value) in variables {
        let id = split_variable(&variable).map_err(|error| VaultError::Variable {
            variable: variable.chars().take(SHOWN_CHARS_MAX).collect(),
            error,
        })?;
        match (contents.get(&id.0, &id.1), from.get(&id)) {
            (Some(secret), Some(_)) if secret.value.expose() == value.expose() => continue,
            (_, Some(first)) => {
                let (first, second) = (first.clone(), variable);
                return Err(VaultError::VariablesDisagree { first, second });
            }
            _ => {}
        }
        let secret = StoredSecret {
            value,
            created_unix_ms: None,
            expires_unix_ms: None,
        };
        contents.put(&id.0, &id.1, secret)?;
        from.insert(id, variable);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::Limit;

    fn value(text: &str) -> Arc<SecretValue> {
        Arc::new(SecretValue::new(text.to_owned()).unwrap())
    }

    fn collected(variables: &[(&str, &str)]) -> Result<Contents, VaultError> {
        collect(
            variables
                .iter()
                .map(|(name, text)| ((*name).to_owned(), value(text)))
                .collect(),
        )
    }

    #[test]
    fn variable_belongs_to_exactly_one_namespace() {
        let check = |variable: &str, expect: Result<(&str, &str), VariableError>| {
            let split = split_variable(variable);
            let split = split
                .as_ref()
                .map(|(namespace, key)| (namespace.as_str(), key.as_str()));
            assert_eq!(split, expect.as_ref().map(|pair| *pair), "{variable:?}");
        };
        check("RINGFENCE_SECRET_A_B_C", Ok(("a", "B_C")));
        check("SANDBOXMCP_SECRET_A_B_C", Ok(("a", "B_C")));
        check("RINGFENCE_SECRET_DEFAULT_API_KEY", Ok(("default", "API_KEY")));
        check("RINGFENCE_SECRET_TEAM1_lower", Ok(("team1", "lower")));
        check("RINGFENCE_SECRET_1_K", Ok(("1", "K")));
        check("RINGFENCE_SECRET_A__B", Ok(("a", "_B")));
        check(
            &format!("RINGFENCE_SECRET_{}_K", "A".repeat(64)),
            Ok((&"a".repeat(64), "K")),
        );
        check(
            &format!("RINGFENCE_SECRET_{}_K", "A".repeat(65)),
            Err(VariableError::Namespace),
        );
        check("RINGFENCE_SECRET_a_K", Err(VariableError::Namespace));
        check("RINGFENCE_SECRET_TEAM-1_K", Err(VariableError::Namespace));
        check("RINGFENCE_SECRET_É_K", Err(VariableError::Namespace));
        check("RINGFENCE_SECRET__K", Err(VariableError::Namespace));
        check("RINGFENCE_SECRET_A", Err(VariableError::Key));
        check("RINGFENCE_SECRET_", Err(VariableError::Key));
        check("RINGFENCE_SECRET_A_", Err(VariableError::Key));
        check("RINGFENCE_SECRET_A_1K", Err(VariableError::Key));
        check("RINGFENCE_SECRET_A_K-K", Err(VariableError::Key));
        check("RINGFENCE_SECRET_A_RINGFENCE_X", Err(VariableError::Key));
        check("ringfence_secret_A_K", Err(VariableError::Prefix));
        check("RINGFENCE_SECRETA_K", Err(VariableError::Prefix));
        check("SECRET_A_K", Err(VariableError::Prefix));
        check("", Err(VariableError::Prefix));
    }

    #[test]
    fn variables_of_both_prefixes_must_agree() {
        let agree = [
            ("RINGFENCE_SECRET_A_K", "canary"),
            ("SANDBOXMCP_SECRET_A_K", "canary"),
        ];
        assert_eq!(collected(&agree).ok().unwrap().len(), 1);
        let differ = [
            ("SANDBOXMCP_SECRET_A_K", "canary"),
            ("RINGFENCE_SECRET_A_K", "canary two"),
        ];
        let error = collected(&differ).err().unwrap();
        assert!(matches!(error, VaultError::VariablesDisagree { .. }));
        assert!(!format!("{error} {error:?}").contains("canary"));
    }

    #[test]
    fn misspelled_variable_is_an_error_and_limits_apply() {
        let error = collected(&[("RINGFENCE_SECRET_A_K", "x"), ("RINGFENCE_SECRET_b_K", "canary")]);
        let error = error.err().unwrap();
        assert!(
            error.to_string().contains("RINGFENCE_SECRET_b_K") && !format!("{error:?}").contains("canary")
        );
        let many = (0..=1_000).map(|number| (format!("RINGFENCE_SECRET_A_K{number}"), value("x")));
        let full = collect(many.collect()).err().unwrap();
        assert!(matches!(
            full,
            VaultError::Full {
                limit: Limit::NamespaceSecrets
            }
        ));
    }
}
