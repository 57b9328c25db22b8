//! Popular packages from the index that this machine is configured for. The test needs the network and runs only if
//! `RINGFENCE_REQUIRE` names `index`.

use super::{node, python};
use crate::client::*;

#[test]
fn numpy_pandas_and_lodash_are_installed_once_and_a_second_use_runs_no_installer() {
    if !is_required("index") {
        eprintln!("skipped: it downloads from the configured index; RINGFENCE_REQUIRE=index runs it");
        return;
    }
    let mut command = ringfence(&["serve"]);
    let configuring = |name: &str| name == "HOME" || name.to_ascii_lowercase().contains("proxy");
    let tools = |name: &str| name.starts_with("PIP_") || name.to_ascii_lowercase().starts_with("npm_");
    command.envs(std::env::vars().filter(|(name, _)| configuring(name) || tools(name)));
    let mut server = Server::from_command(command);
    let arguments = json!({"language": "python", "packages": ["numpy", "pandas"]});
    let installed = server.call_ok("install_package", arguments);
    assert!(
        list_of(&installed["installed"])
            .iter()
            .all(|package| package["sha256"].is_string())
    );
    let records = |server: &mut Server| {
        let arguments = json!({"action": "package.installed"});
        server.facts("audit_execution", arguments)["records"]
            .as_array()
            .unwrap()
            .len()
    };
    let installations = records(&mut server);
    assert!(installations > 0, "the control: one that runs is on record");
    let code = "import numpy, pandas\nint(pandas.DataFrame({'a': numpy.arange(10)}).a.sum()), numpy.__file__";
    for _ in 0..2 {
        let run = python(&mut server, code, &["pandas", "numpy"]);
        run.assert_fields(json!({"result": [45, "/packages/layer/python/numpy/__init__.py"]}));
    }
    let again = json!({"language": "python", "packages": ["numpy", "pandas"]});
    assert_eq!(server.facts("install_package", again)["output"], "");
    assert_eq!(records(&mut server), installations, "an installer ran again");
    let arguments = json!({"language": "node", "packages": ["lodash"]});
    assert_eq!(
        server.facts("install_package", arguments)["installed"][0]["name"],
        "lodash"
    );
    assert_eq!(
        node(&mut server, "require('lodash').sum([1, 2, 39])", &["lodash"])["result"],
        42
    );
}
