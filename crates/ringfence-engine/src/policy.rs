//! The policy decision for a request. `decide` is pure and the only maker of a [`Grant`]; a grant is not checked again.

mod domains;
mod limits;
pub(crate) mod reach;
mod workspace;

pub(crate) use domains::{approval_timeout, is_granted, reevaluate, restrict};
pub use limits::check_caps;
pub(crate) use limits::{OwnLimits, check_session, limits_of, narrow, set_defaults};
pub(crate) use workspace::workspace;

use limits::{MEBIBYTE, limits_for, raise_memory};

use crate::{
    error::Result,
    imports,
    settings::{BackendPolicy, CheckSettings, EgressPolicy, PolicySettings},
};
use ringfence_egress::{Rule, Rules as Reaches};
use ringfence_types::{
    AllowedDomains, Backend, ExecuteRequest, Limits, RequestError, Rules, WorkspaceSource,
};
use std::{borrow::Cow, ops::Deref, path::PathBuf, time::Duration};

/// A granted request: complete limits, nothing left to decide.
#[derive(Debug)]
pub(crate) struct Grant(Granted);

/// The contents of a grant, which are read-only.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) request: ExecuteRequest,
    pub(crate) limits: Limits,
    pub(crate) caps: Limits,
    /// The imports of its code, and the profile that it is checked by.
    pub(crate) rules: Rules,
    pub(crate) reaches: Reaches,
    /// Rules that were approved for this run only.
    pub(crate) once: Vec<Rule>,
    /// The hosts that a call of a session names, and is restricted to; `None`: all of the session's.
    pub(crate) named: Option<Reaches>,
    /// Time to wait for a person's approval of a connection that no rule allows; `None`: it is denied at once.
    pub(crate) approval_timeout: Option<Duration>,
    pub(crate) backend: Backend,
}

impl Deref for Grant {
    type Target = Granted;
    fn deref(&self) -> &Granted {
        &self.0
    }
}

/// The limits of the namespace and of the caller, and the approvals, at the time of the decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceState {
    pub(crate) limits: OwnLimits,
    /// Caps of the caller, if it has some of its own.
    pub(crate) caller: Option<Limits>,
    pub(crate) approved: Approved,
}

/// Egress rules that a person has approved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approved {
    /// For all programs of the namespace, for a limited time.
    pub(crate) of_namespace: Vec<Rule>,
    /// For the session, or for this one run, independent of the hosts that are named.
    pub(crate) own: Vec<Rule>,
    /// For this run only.
    pub(crate) once: Vec<Rule>,
}

impl Approved {
    fn all(&self) -> impl Iterator<Item = &Rule> {
        self.of_namespace.iter().chain(self.extra())
    }

    fn extra(&self) -> impl Iterator<Item = &Rule> {
        self.own.iter().chain(&self.once)
    }
}

/// Grants the request, or names the rule that refuses it. `private`: the server's own directories on the host.
pub(crate) fn decide(
    policy: &PolicySettings,
    state: &NamespaceState,
    private: &[PathBuf],
    mut request: ExecuteRequest,
) -> Result<Grant> {
    request.check()?;
    let backend = backend(&policy.backends, &request)?;
    check_secrets(policy, &request)?;
    if !request.packages.is_empty() {
        policy.packages.check(&request.packages)?;
    }
    request.workspace = workspace(policy, private, &request.namespace, request.workspace)?;
    let (usual, most) = limits_of(policy, &state.limits);
    let (mut limits, most) = limits_for(state.caller.as_ref(), &usual, &most, &request.limits)?;
    if request.workspace.is_in_memory() {
        raise_memory(&mut limits, &most, &request.limits)?;
    }
    let files: u64 = request.files.iter().map(|file| file.bytes.len() as u64).sum();
    if files > limits.private_disk_bytes() {
        let mebibytes = files.div_ceil(MEBIBYTE).saturating_mul(2);
        return Err(RequestError::invalid(
            format!(
                "the files have {files} bytes; the private disk has {}: max_disk_mb, and at most half of the memory.",
                limits.private_disk_bytes()
            ),
            format!("next: execute_code {{resource_limits: {{max_disk_mb: {mebibytes}}}}}"),
        ));
    }
    let rules = rules(&policy.check, &request)?;
    let egress = egress_of(policy, backend);
    let (namespace, asked) = (&request.namespace, &request.allowed_domains);
    let reaches = domains::decide(&egress, &state.approved, namespace, asked)?;
    reach::check(&reaches)?;
    let approval_timeout = approval_timeout(&egress, asked);
    Ok(Grant(Granted {
        backend,
        request,
        limits,
        caps: most,
        rules,
        reaches,
        once: state.approved.once.clone(),
        named: None,
        approval_timeout,
    }))
}

/// Returns the backend of a request: never another than the requested one.
fn backend(policy: &BackendPolicy, request: &ExecuteRequest) -> Result<Backend> {
    let backend = request.backend.unwrap_or(policy.default);
    policy.allows(backend)?;
    if backend != Backend::Native {
        check_container(backend, request)?;
    }
    Ok(backend)
}

fn check_container(backend: Backend, request: &ExecuteRequest) -> Result<()> {
    let what = match request {
        request if request.workspace != WorkspaceSource::Private => "workspace",
        request if !request.packages.is_empty() => "packages",
        _ => return Ok(()),
    };
    Err(RequestError::unsupported(
        format!(
            "the backend `{backend}` has no `{what}`: its programs see their image and a private workspace."
        ),
        "Put packages into the image and send files in `files`; or ask for `backend: native`, where that is allowed.",
    ))
}

/// Returns the egress policy for sandboxes of this backend: a container has a network namespace in every tier.
fn egress_of(policy: &PolicySettings, backend: Backend) -> Cow<'_, EgressPolicy> {
    match backend.tier(policy.egress.tier) {
        tier if tier == policy.egress.tier => Cow::Borrowed(&policy.egress),
        tier => Cow::Owned(EgressPolicy {
            tier,
            ..policy.egress.clone()
        }),
    }
}

/// Grants a session, whose sandbox may live for `age`; also returns the limits of its calls.
pub(crate) fn decide_session(
    policy: &PolicySettings,
    state: &NamespaceState,
    private: &[PathBuf],
    request: ExecuteRequest,
    age: Duration,
) -> Result<(Grant, Limits)> {
    let mut grant = decide(policy, state, private, request)?;
    let limits = grant.limits.clone();
    grant.0.limits.timeout_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    Ok((grant, limits))
}

pub(crate) struct SessionGrant<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) allowed_domains: &'a AllowedDomains,
    pub(crate) backend: Backend,
}

/// Grants a call of a session: it has the session's resources, and its own time and output limits.
pub(crate) fn decide_call(
    policy: &PolicySettings,
    state: &NamespaceState,
    session: SessionGrant<'_>,
    mut request: ExecuteRequest,
) -> Result<Grant> {
    request.check()?;
    let SessionGrant {
        limits: session,
        allowed_domains,
        backend,
    } = session;
    if request.backend.is_some_and(|asked| asked != backend) {
        return Err(RequestError::invalid(
            format!("the session was made by the backend `{backend}`."),
            "Leave `backend` out, or make a session with it.",
        ));
    }
    let caller = state.caller.as_ref();
    check_session(session, caller)?;
    let asked = std::mem::replace(&mut request.allowed_domains, allowed_domains.clone());
    let (_, caps) = limits_of(policy, &state.limits);
    let most = Limits {
        timeout_ms: caps.timeout_ms,
        output_bytes: caps.output_bytes,
        ..session.clone()
    };
    let (limits, most) = limits_for(caller, &session.least(&most), &most, &request.limits)?;
    let caps = caps.least(&Limits {
        timeout_ms: most.timeout_ms,
        output_bytes: most.output_bytes,
        ..caps.clone()
    });
    let rules = rules(&policy.check, &request)?;
    let reaches = reevaluate(
        &policy.egress,
        &state.approved,
        &request.namespace,
        &request.allowed_domains,
    );
    let named = domains::narrow(&reaches, &asked)?;
    let reaches = restrict(reaches, named.as_ref());
    let timeout = approval_timeout(&egress_of(policy, backend), &request.allowed_domains);
    Ok(Grant(Granted {
        backend,
        request,
        limits,
        caps,
        rules,
        reaches,
        once: state.approved.once.clone(),
        approval_timeout: timeout.filter(|_| named.is_none()),
        named,
    }))
}

fn rules(check: &CheckSettings, request: &ExecuteRequest) -> Result<Rules> {
    let (profile, named) = (request.profile, request.allowed_imports.as_ref());
    let mut rules = imports::rules(check, request.language, profile, named)?;
    if let Some(modules) = &mut rules.imports {
        modules.extend(imports::local(&request.files));
    }
    Ok(rules)
}

fn check_secrets(policy: &PolicySettings, request: &ExecuteRequest) -> Result<()> {
    let namespace = &request.namespace;
    match request.secrets.iter().find(|key| !policy.gives(namespace, key)) {
        None => Ok(()),
        Some(key) => {
            let key = key.as_str();
            Err(RequestError::denied(
                format!("the policy gives the namespace `{namespace}` no secret `{key}`."),
                format!("Have the operator add `{namespace}/{key}` to `vault.allow`."),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ListedWorkspace, PackagePolicy, SecretRule};
    use ringfence_types::{
        EnvName, ErrorCode, Language, LimitsRequest, Namespace, Profile, WorkspaceMode, requirements,
    };
    use std::collections::{BTreeMap, BTreeSet};

    fn policy() -> PolicySettings {
        let defaults = Limits {
            memory_bytes: 512 * MEBIBYTE,
            cpu_millicores: 1000,
            timeout_ms: 60_000,
            processes: 64,
            output_bytes: 1_000_000,
            disk_bytes: 512 * MEBIBYTE,
        };
        let caps = Limits {
            disk_bytes: 16384 * MEBIBYTE,
            memory_bytes: 8192 * MEBIBYTE,
            timeout_ms: 3_600_000,
            processes: 1024,
            ..defaults.clone()
        };
        PolicySettings {
            defaults,
            caps,
            secrets: vec![SecretRule {
                namespace: "team-*".to_owned(),
                key: "API_KEY".to_owned(),
            }],
            workspaces: vec![ListedWorkspace {
                name: "project".parse().unwrap(),
                directory: "/srv/project".into(),
                mode: WorkspaceMode::Ro,
                namespaces: vec!["team-*".to_owned()],
            }],
            check: CheckSettings {
                profile: Profile::Unrestricted,
                profiles: Profile::ALL.iter().copied().collect(),
                allowed_imports: BTreeSet::new(),
                only_allowed_imports: false,
                known_imports: BTreeMap::new(),
                schemas: BTreeMap::new(),
            },
            disk: crate::settings::DiskPolicy {
                total: u64::MAX,
                of_namespace: u64::MAX,
                free: 0,
            },
            packages: PackagePolicy {
                enabled: true,
                allow: vec!["numpy".to_owned(), "types-*".to_owned()],
                timeout: Duration::from_secs(60),
                bytes_max: MEBIBYTE,
                hosts: Vec::new(),
            },
            egress: EgressPolicy {
                secrets: Vec::new(),
                tier: ringfence_types::Tier::Full,
                allow: Vec::new(),
                on_denied: crate::settings::OnDenied::Deny,
            },
            web: EgressPolicy {
                secrets: Vec::new(),
                tier: ringfence_types::Tier::Full,
                allow: Vec::new(),
                on_denied: crate::settings::OnDenied::Deny,
            },
            backends: BackendPolicy {
                default: Backend::Native,
                allowed: [Backend::Native].into(),
                floor: ringfence_types::Tier::Full,
                native: ringfence_types::Tier::Full,
            },
        }
    }

    /// claim: [PKG-6]
    #[test]
    fn disallowed_package_is_refused_by_name() {
        let check = |enabled: bool, name: &str, expect: Result<(), &str>| {
            let mut policy = policy();
            policy.packages.enabled = enabled;
            let mut request = ExecuteRequest::new(Language::Python, "1");
            request.packages = requirements(Language::Python, &[name.to_owned()]).unwrap();
            match (
                decide(&policy, &NamespaceState::default(), &[], request).map(drop),
                expect,
            ) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) => {
                    assert_eq!(error.code, ErrorCode::PolicyDenied);
                    assert!(error.to_string().contains(part), "{error}");
                }
                (decided, expect) => panic!("{name}: {decided:?}, expected {expect:?}"),
            }
        };
        check(true, "numpy", Ok(()));
        check(true, "NumPy==2", Ok(()));
        check(true, "types_requests", Ok(()));
        check(true, "numpyx", Err("`numpyx`"));
        check(true, "pandas", Err("packages.allow"));
        check(false, "numpy", Err("packages.enabled"));
    }

    /// claim: [TIER-4]
    #[test]
    fn backend_must_be_allowed_and_meet_the_floor() {
        use ringfence_types::Tier;
        let check =
            |backend: Backend, allowed: &[Backend], floor: Tier, expect: Result<(), (ErrorCode, &str)>| {
                let mut policy = policy();
                policy.backends.allowed = allowed.iter().copied().collect();
                policy.backends.floor = floor;
                let mut request = ExecuteRequest::new(Language::Python, "1");
                request.backend = Some(backend);
                let decided = decide(&policy, &NamespaceState::default(), &[], request);
                match (decided, expect) {
                    (Ok(grant), Ok(())) => assert_eq!(grant.backend, backend, "never another"),
                    (Err(error), Err((code, part))) => {
                        assert_eq!(error.code, code, "{error}");
                        assert!(error.to_string().contains(part), "{error}");
                    }
                    (decided, expect) => panic!("{backend} {floor}: {decided:?}, expected {expect:?}"),
                }
            };
        let (docker, gvisor) = (Backend::Docker, Backend::Gvisor);
        let native = Backend::Native;
        check(native, &[native], Tier::Full, Ok(()));
        check(
            docker,
            &[native],
            Tier::Container,
            Err((ErrorCode::PolicyDenied, "containers.enabled")),
        );
        check(
            docker,
            Backend::ALL,
            Tier::Full,
            Err((ErrorCode::BelowFloor, "`floor: container`")),
        );
        check(
            docker,
            Backend::ALL,
            Tier::Gvisor,
            Err((ErrorCode::BelowFloor, "`floor: container`")),
        );
        check(
            gvisor,
            Backend::ALL,
            Tier::Full,
            Err((ErrorCode::BelowFloor, "`floor: gvisor`")),
        );
        check(docker, Backend::ALL, Tier::Container, Ok(()));
        check(gvisor, Backend::ALL, Tier::Container, Ok(()));
        check(
            native,
            &[docker],
            Tier::Container,
            Err((ErrorCode::PolicyDenied, "`backend: native`")),
        );
    }

    #[test]
    fn unsupported_container_argument_is_refused_by_name() {
        let check = |change: &dyn Fn(&mut ExecuteRequest), part: &str| {
            let mut policy = policy();
            policy.backends.allowed = Backend::ALL.iter().copied().collect();
            policy.backends.floor = ringfence_types::Tier::Container;
            let mut request = ExecuteRequest::new(Language::Python, "1");
            change(&mut request);
            let native = decide(&policy, &NamespaceState::default(), &[], request.clone());
            assert!(native.is_ok(), "{native:?}");
            request.backend = Some(Backend::Docker);
            let refused = decide(&policy, &NamespaceState::default(), &[], request).unwrap_err();
            assert_eq!(refused.code, ErrorCode::UnsupportedArgument);
            assert!(
                refused.message.contains(part) && refused.message.contains("docker"),
                "{refused}"
            );
        };
        check(
            &|request| request.workspace = WorkspaceSource::Namespace,
            "`workspace`",
        );
        let packages = requirements(Language::Python, &["numpy".to_owned()]).unwrap();
        check(&|request| request.packages = packages.clone(), "`packages`");
    }

    #[test]
    fn limit_beyond_the_cap_is_refused_with_the_cap() {
        let check = |limits: LimitsRequest, expect: Result<(), &str>| {
            let mut request = ExecuteRequest::new(Language::Python, "1");
            request.limits = limits;
            match (
                decide(&policy(), &NamespaceState::default(), &[], request).map(|_| ()),
                expect,
            ) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
                (decided, expect) => panic!("{decided:?}, expected {expect:?}"),
            }
        };
        let nothing = LimitsRequest::default;
        let ram = |mb| LimitsRequest {
            max_ram_mb: Some(mb),
            ..nothing()
        };
        let cpu = |cores| LimitsRequest {
            max_cpu_cores: Some(cores),
            ..nothing()
        };
        let late = LimitsRequest {
            timeout_ms: Some(3_600_001),
            ..nothing()
        };
        let alone = LimitsRequest {
            max_processes: Some(0),
            ..nothing()
        };
        check(nothing(), Ok(()));
        check(ram(8193), Err("8192"));
        check(ram(0), Err("16"));
        check(ram(u64::MAX), Err("8192"));
        check(cpu(f64::NAN), Err("max_cpu_cores"));
        check(cpu(-1.0), Err("max_cpu_cores"));
        check(cpu(f64::INFINITY), Err("max_cpu_cores"));
        check(cpu(0.5), Ok(()));
        check(late, Err("3600.001 is outside 0.1..=3600"));
        check(alone, Err("max_processes"));
    }

    #[test]
    fn namespace_gets_only_allowed_secrets() {
        let check = |namespace: &str, key: &str, good: bool| {
            let mut request = ExecuteRequest::new(Language::Shell, "true");
            request.namespace = Namespace::try_from(namespace.to_owned()).unwrap();
            request.secrets = [EnvName::try_from(key.to_owned()).unwrap()].into();
            let decided = decide(&policy(), &NamespaceState::default(), &[], request)
                .map(drop)
                .map_err(|error| error.code);
            assert_eq!(
                decided,
                if good {
                    Ok(())
                } else {
                    Err(ErrorCode::PolicyDenied)
                },
                "{namespace}/{key}"
            );
        };
        check("team-a", "API_KEY", true);
        check("team-a", "API_KEY_2", false);
        check("team", "API_KEY", false);
        check("default", "API_KEY", false);
    }

    #[test]
    fn listed_workspace_is_visible_to_its_namespaces_only() {
        let ask = |namespace: &str, name: &str| {
            let namespace = Namespace::try_from(namespace.to_owned()).unwrap();
            workspace(&policy(), &[], &namespace, name.parse().unwrap())
        };
        let found = ask("team-a", "project").unwrap();
        assert!(matches!(
            found,
            WorkspaceSource::Host {
                mode: WorkspaceMode::Ro,
                ..
            }
        ));
        let unknown = ask("team-a", "other").unwrap_err();
        assert_eq!(unknown.code, ErrorCode::NotFound);
        assert!(unknown.hint.contains("private, namespace, project"), "{unknown}");
        let others = ask("default", "project").unwrap_err();
        assert_eq!(others.code, ErrorCode::NotFound);
        assert!(!others.hint.contains("project"), "{others}");
        let own = PathBuf::from("/srv/project/state");
        let namespace = Namespace::try_from("team-a".to_owned()).unwrap();
        let refused = workspace(&policy(), &[own], &namespace, "project".parse().unwrap());
        assert_eq!(refused.unwrap_err().code, ErrorCode::PolicyDenied);
    }

    fn ram(mb: u64) -> LimitsRequest {
        LimitsRequest {
            max_ram_mb: Some(mb),
            ..LimitsRequest::default()
        }
    }

    fn memory_with(own: &OwnLimits, limits: LimitsRequest) -> Result<u64> {
        let state = NamespaceState {
            limits: own.clone(),
            ..NamespaceState::default()
        };
        let mut request = ExecuteRequest::new(Language::Shell, "true");
        request.limits = limits;
        let grant = decide(&policy(), &state, &[], request)?;
        Ok(grant.limits.memory_bytes / MEBIBYTE)
    }

    #[test]
    fn namespace_limits_are_narrowed_but_never_widened() {
        let wide = OwnLimits::default();
        let narrowed = narrow(&policy(), &wide, &ram(100)).unwrap();
        assert!(narrow(&policy(), &narrowed, &ram(101)).is_err());
        assert!(narrow(&policy(), &wide, &ram(8193)).is_err());
        assert_eq!(memory_with(&narrowed, LimitsRequest::default()).unwrap(), 100);
        assert_eq!(memory_with(&narrowed, ram(50)).unwrap(), 50);
        let refused = memory_with(&narrowed, ram(101)).unwrap_err();
        assert!(refused.message.contains("16..=100"));
        assert!(set_defaults(&policy(), &narrowed, &ram(101)).is_err());
    }

    #[test]
    fn namespace_defaults_are_set_within_unchanged_caps() {
        let own = set_defaults(&policy(), &OwnLimits::default(), &ram(1024)).unwrap();
        let (usual, caps) = limits_of(&policy(), &own);
        assert_eq!(usual.memory_bytes, 1024 * MEBIBYTE);
        assert_eq!(caps, policy().caps);
        let processes = LimitsRequest {
            max_processes: Some(9),
            ..LimitsRequest::default()
        };
        let own = set_defaults(&policy(), &own, &processes).unwrap();
        let (usual, _) = limits_of(&policy(), &own);
        assert_eq!((usual.memory_bytes, usual.processes), (1024 * MEBIBYTE, 9));
        assert_eq!(memory_with(&own, ram(2048)).unwrap(), 2048, "asking goes on");
        let refused = set_defaults(&policy(), &own, &ram(8193)).unwrap_err();
        assert!(refused.message.contains("8192"), "{refused}");
    }

    #[test]
    fn callers_caps_bound_defaults_requests_and_what_a_request_raises() {
        let caps = LimitsRequest {
            timeout_ms: Some(5000),
            ..ram(256)
        };
        let state = NamespaceState {
            caller: Some(caps.caps()),
            ..NamespaceState::default()
        };
        let ask = |limits: LimitsRequest| {
            let mut request = ExecuteRequest::new(Language::Shell, "true");
            request.limits = limits;
            decide(&policy(), &state, &[], request)
        };
        let silent = ask(LimitsRequest::default()).unwrap();
        assert_eq!(
            (silent.limits.memory_bytes, silent.limits.timeout_ms),
            (256 * MEBIBYTE, 5000)
        );
        assert_eq!(silent.caps.memory_bytes, 256 * MEBIBYTE);
        assert_eq!(ask(ram(64)).unwrap().limits.memory_bytes, 64 * MEBIBYTE);
        assert_eq!(ask(ram(257)).unwrap_err().code, ErrorCode::PolicyDenied);
        assert_eq!(ask(ram(0)).unwrap_err().code, ErrorCode::InvalidArgument);
        let disk = |mb| LimitsRequest {
            max_disk_mb: Some(mb),
            ..LimitsRequest::default()
        };
        assert_eq!(ask(disk(128)).unwrap().limits.memory_bytes, 256 * MEBIBYTE);
        let refused = ask(disk(129)).unwrap_err();
        assert!(refused.message.contains("outside 1..=128"), "{refused}");
        assert!(
            refused.hint.contains("half of the memory that you may have"),
            "{refused}"
        );
        let call = |memory_bytes: u64, limits: LimitsRequest| {
            let session = SessionGrant {
                limits: &Limits {
                    memory_bytes,
                    ..policy().defaults
                },
                allowed_domains: &AllowedDomains::default(),
                backend: Backend::Native,
            };
            let mut request = ExecuteRequest::new(Language::Shell, "true");
            request.limits = limits;
            decide_call(&policy(), &state, session, request)
        };
        let own = call(256 * MEBIBYTE, LimitsRequest::default()).unwrap();
        assert_eq!(
            (own.limits.memory_bytes, own.limits.timeout_ms),
            (256 * MEBIBYTE, 5000)
        );
        let longer = LimitsRequest {
            timeout_ms: Some(5001),
            ..LimitsRequest::default()
        };
        assert_eq!(
            call(256 * MEBIBYTE, longer).unwrap_err().code,
            ErrorCode::PolicyDenied
        );
        let larger = call(257 * MEBIBYTE, LimitsRequest::default()).unwrap_err();
        assert_eq!(larger.code, ErrorCode::PolicyDenied);
        let too_small = NamespaceState {
            caller: Some(ram(15).caps()),
            ..NamespaceState::default()
        };
        let request = ExecuteRequest::new(Language::Shell, "true");
        let denied = decide(&policy(), &too_small, &[], request).unwrap_err();
        assert_eq!(denied.code, ErrorCode::PolicyDenied);
        assert!(check_caps(&ram(15)).is_err() && check_caps(&ram(16)).is_ok());
    }

    #[test]
    fn larger_disk_raises_the_memory_limit() {
        let disk = |mb, memory| LimitsRequest {
            max_disk_mb: Some(mb),
            max_ram_mb: memory,
            ..LimitsRequest::default()
        };
        let own = OwnLimits::default();
        assert_eq!(memory_with(&own, disk(600, None)).unwrap(), 1200);
        assert_eq!(memory_with(&own, disk(100, None)).unwrap(), 512);
        assert_eq!(memory_with(&own, disk(600, Some(700))).unwrap(), 700);
        let refused = memory_with(&own, disk(5000, None)).unwrap_err();
        assert!(
            refused.message.contains("max_disk_mb = 5000 is outside 1..=4096"),
            "{refused}"
        );
    }
}
