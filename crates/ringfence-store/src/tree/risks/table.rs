//! The names that hosts are known to run or obey. A help for reviewers, not a wall: no list of this kind is complete,
//! and a file that has no known name can be what one of these includes.

use super::Risk;

/// Where a rule looks. All in small letters; a path is compared as a file system without case would.
pub(super) enum PathPattern {
    Name(&'static [&'static str]),
    /// How the last name ends.
    Ending(&'static [&'static str]),
    /// How the last name begins.
    Beginning(&'static [&'static str]),
    /// A directory of this name is anywhere in the path, or is the path's last name.
    Within(&'static [&'static str]),
    /// The last names, parts divided by `/`.
    Tail(&'static [&'static str]),
    /// The whole path is a Python module of one of these names.
    Module(&'static [&'static str]),
}

pub(super) struct Rule {
    pub(super) risk: Risk,
    pub(super) place: PathPattern,
}

const fn rule(rule: &'static str, sentence: &'static str, place: PathPattern) -> Rule {
    Rule {
        risk: Risk { rule, sentence },
        place,
    }
}

impl PathPattern {
    /// Whether a directory of these names is such a place. What is run is a file: a directory `build` is no `BUILD`.
    pub(super) fn holds_directory(&self, names: &[String]) -> bool {
        matches!(self, Self::Within(_)) && self.holds(names)
    }

    pub(super) fn holds(&self, names: &[String]) -> bool {
        let Some(last) = names.last() else { return false };
        match self {
            Self::Within(list) => names.iter().any(|name| list.contains(&name.as_str())),
            Self::Name(list) => list.contains(&last.as_str()),
            Self::Ending(list) => list.iter().any(|end| last.ends_with(end)),
            Self::Beginning(list) => list.iter().any(|start| last.starts_with(start)),
            Self::Tail(list) => list.iter().any(|tail| {
                let tail: Vec<&str> = tail.split('/').collect();
                let last = names.len().checked_sub(tail.len()).map(|from| &names[from..]);
                last.is_some_and(|last| last == tail)
            }),
            Self::Module(list) => match names {
                [file] => list.iter().any(|module| file.strip_suffix(".py") == Some(module)),
                [package, file] => file == "__init__.py" && list.contains(&package.as_str()),
                _ => false,
            },
        }
    }
}

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Version control.
    rule("git.directory", "Git runs hooks and programs that the files of this repository name.",
        PathPattern::Within(&[".git"])),
    rule("git.settings", "Git takes filters, modules or hooks from this file.",
        PathPattern::Name(&[".gitmodules", ".gitattributes", ".gitconfig", ".lfsconfig"])),
    rule("git.bare", "Git takes a directory with such a file for a part of a repository, and obeys its settings and hooks.",
        PathPattern::Name(&["commondir", "config.worktree", "gitdir"])),
    rule("git.hooks", "Hook managers run what is in here at commits.",
        PathPattern::Within(&[".husky", ".githooks", ".lefthook"])),
    rule("git.hooks", "Hook managers run what this file names at commits.",
        PathPattern::Name(&[".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", ".overcommit.yml"])),
    rule("git.hooks", "Hook managers run what this file names at commits.",
        PathPattern::Beginning(&["lefthook.", ".lefthook", "lefthook-local.", ".lintstagedrc", "lint-staged.config.",
            "commitlint.config.", ".commitlintrc", ".huskyrc", ".simple-git-hooks"])),
    rule("vcs.directory", "Version control runs hooks and programs that the files of this repository name.",
        PathPattern::Within(&[".hg", ".jj", ".svn", ".bzr", ".sl", "_darcs"])),
    rule("vcs.directory", "Mercurial takes hooks and extensions from this file.", PathPattern::Name(&[".hgrc"])),

    // Shells, interpreters, debuggers.
    rule("shell.directory", "Shells run this file when somebody enters the directory.",
        PathPattern::Name(&[".envrc", ".env.fish", ".autoenv.zsh", ".autoenv", ".tool-versions", ".in", ".out"])),
    rule("shell.directory", "Shells run this file when somebody enters the directory.",
        PathPattern::Beginning(&[".mise", "mise.toml", "mise.local."])),
    rule("shell.directory", "Shells run what is in here when somebody enters the directory.",
        PathPattern::Within(&[".direnv", ".mise"])),
    rule("shell.start", "Shells read this file when they start.",
        PathPattern::Name(&[".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc",
            ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc",
            ".xprofile", ".xinitrc", ".xsession", "config.fish"])),
    rule("environment", "Tools load variables from this file, and some of those name programs or libraries to run.",
        PathPattern::Name(&[".env", ".flaskenv", ".renviron"])),
    rule("environment", "Tools load variables from this file, and some of those name programs or libraries to run.",
        PathPattern::Beginning(&[".env."])),
    rule("interpreter.start", "An interpreter or a debugger runs this file when it starts in the directory.",
        PathPattern::Name(&[".gdbinit", ".lldbinit", ".cgdbrc", ".rprofile", ".irbrc", ".pryrc", ".rspec", ".ghci", ".iex.exs",
            ".pdbrc", ".pdbrc.py", ".ocamlinit", ".erlang", ".octaverc", ".sqliterc", ".psqlrc", ".mongorc.js",
            "ipython_config.py", "latexmkrc", ".latexmkrc", ".perldb", ".screenrc", ".tmux.conf",
            ".proverc", ".perltidyrc", ".perlcriticrc", ".pythonrc", ".pythonstartup", ".formatter.exs", "startup.m",
            "matlabrc.m", "startup.jl"])),
    rule("interpreter.start", "Jupyter and IPython run what is in here when they start.",
        PathPattern::Within(&[".ipython", ".jupyter", "profile_default"])),
    rule("interpreter.start", "A debugger runs this file with the program that it is named after.",
        PathPattern::Ending(&["-gdb.py", "-gdb.gdb", "-gdb.scm"])),

    // Continuous integration.
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        PathPattern::Within(&[".circleci", ".buildkite", ".woodpecker", ".teamcity", ".drone"])),
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        PathPattern::Name(&["azure-pipelines.yml", "azure-pipelines.yaml", "appveyor.yml", ".appveyor.yml",
            "bitbucket-pipelines.yml", "cloudbuild.yaml", "buildspec.yml", ".travis.yml", ".drone.yml", ".cirrus.yml",
            ".woodpecker.yml", ".semaphore.yml", "action.yml", "action.yaml"])),
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        PathPattern::Beginning(&[".gitlab-ci", "jenkinsfile"])),
    rule("ci", "GitHub and its likes run or obey what is in here.",
        PathPattern::Within(&[".github", ".gitea", ".forgejo", ".gitlab"])),

    // Code that is loaded without being a program of its own.
    rule("compiled", "It is compiled code, which is loaded instead of or beside a source and cannot be reviewed as text.",
        PathPattern::Ending(&[".so", ".pyd", ".node", ".dylib", ".dll", ".jar", ".war", ".class", ".wasm", ".beam", ".elc", ".zwc",
            ".a", ".o"])),
    rule("python.compiled", "Python runs compiled files instead of their sources.", PathPattern::Within(&["__pycache__"])),
    rule("python.compiled", "Python runs compiled files instead of their sources.", PathPattern::Ending(&[".pyc", ".pyo"])),

    // Python.
    rule("python.start", "Python runs this file whenever it starts.",
        PathPattern::Name(&["sitecustomize.py", "usercustomize.py", "pyvenv.cfg"])),
    rule("python.start", "Python runs the lines of such a file whenever it starts.",
        PathPattern::Ending(&[".pth", ".egg-link"])),
    rule("python.modules", "Python runs installed modules and their commands by name.",
        PathPattern::Within(&["site-packages", "dist-packages", "venv", ".venv", "virtualenv", ".virtualenv", ".tox", ".nox"])),
    rule("python.modules", "Tools run the modules that an installed package names as its plug-ins.",
        PathPattern::Name(&["entry_points.txt"])),
    rule("python.modules", "Python finds this module instead of its own of that name.", PathPattern::Module(STANDARD_MODULES)),
    rule("python.tests", "Test runners run this file before any test, or take code and options to run from it.",
        PathPattern::Name(&["conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml",
            "noxfile.py", ".coveragerc"])),
    rule("python.build", "Installing or building the project runs what this file says.",
        PathPattern::Name(&["setup.py", "setup.cfg", "pyproject.toml", "pip.conf", ".pip.conf", "pip.ini", ".pypirc",
            "hatch_build.py", "pipfile", "uv.toml"])),
    rule("python.settings", "A checker of Python code takes plug-ins or programs to run from this file.",
        PathPattern::Name(&[".pylintrc", "pylintrc", ".pylintrc.toml", "mypy.ini", ".mypy.ini", ".flake8"])),
    rule("python.settings", "A tool runs this file as its settings.",
        PathPattern::Name(&["conf.py", "gunicorn.conf.py", "celeryconfig.py", "jupyter_notebook_config.py",
            "jupyter_server_config.py", "jupyter_lab_config.py"])),
    rule("python.tasks", "A task runner runs this file.", PathPattern::Name(&["tasks.py", "fabfile.py", "dodo.py", "locustfile.py"])),

    // JavaScript.
    rule("node.settings", "Package managers take a registry, credentials or scripts to run from this file.",
        PathPattern::Name(&[".npmrc", ".pnpmfile.cjs", "pnpmfile.js", "pnpm-workspace.yaml", "bunfig.toml", "binding.gyp",
            ".noderc"])),
    rule("node.settings", "Package managers take a registry, credentials or scripts to run from this file.",
        PathPattern::Beginning(&[".yarnrc", "deno.json"])),
    rule("node.settings", "Yarn runs what is in here.", PathPattern::Within(&[".yarn"])),
    rule("node.modules", "Node runs installed modules and their commands by name.", PathPattern::Within(&["node_modules"])),
    rule("node.modules", "Node runs this file before any program of the project.", PathPattern::Beginning(&[".pnp."])),
    rule("tool.settings", "A tool of the project runs this file as its settings.",
        PathPattern::Ending(&[".config.js", ".config.cjs", ".config.mjs", ".config.ts", ".config.cts", ".config.mts"])),
    rule("tool.settings", "A tool of the project runs this file as its settings, or takes programs to run from it.",
        PathPattern::Beginning(&["webpack.config.", "vite.config.", "vitest.config.", "jest.config.", "rollup.config.",
            "babel.config.", "eslint.config.", ".eslintrc", ".prettierrc", "prettier.config.", "next.config.",
            "nuxt.config.", "svelte.config.", "tailwind.config.", "postcss.config.", ".postcssrc", "playwright.config.",
            "cypress.config.", "gulpfile.", "gruntfile.", ".babelrc", "astro.config.", "metro.config.",
            "esbuild.config.", ".mocharc", "karma.conf.", ".stylelintrc", "stylelint.config.", ".swcrc", ".parcelrc",
            "wdio.conf.", "protractor.conf.", ".nycrc"])),
    rule("tool.settings", "A tool of the project takes programs to run from this file.",
        PathPattern::Name(&["nodemon.json", "turbo.json", "nx.json", "lerna.json", "project.json", "angular.json"])),
    rule("tool.settings", "Storybook runs what is in here.", PathPattern::Within(&[".storybook"])),

    // Other builds.
    rule("build", "A build tool runs what this file says.",
        PathPattern::Name(&["makefile", "gnumakefile", "makefile.am", "makefile.in", "bsdmakefile", "justfile", ".justfile",
            "taskfile.yml", "taskfile.yaml", "rakefile", "rakefile.rb", "cmakelists.txt", "cmakepresets.json",
            "cmakeuserpresets.json", "meson.build", "meson_options.txt", "sconstruct", "sconscript", "wscript", "build.xml",
            "pom.xml", "gradlew", "gradle.properties", "gradle-wrapper.properties", "mvnw", "maven-wrapper.properties",
            "build.zig", "build.sbt", "gemfile", "guardfile", "configure", "configure.ac", "autogen.sh", "vagrantfile",
            "procfile", "tiltfile", "snakefile", "mix.exs", "rebar.config", "package.swift", "podfile", "fastfile",
            "dangerfile", "brewfile", "composer.json", "build.pl", "makefile.pl", "setup.hs", "stack.yaml", "project.clj",
            "deps.edn", "conanfile.py", "premake5.lua", "xmake.lua", "earthfile", "magefile.go", "flake.nix", "shell.nix",
            "default.nix", "devenv.nix", "ansible.cfg", ".ansible.cfg", "nuget.config", "capfile",
            "mlproject", "dvc.yaml", "devbox.json", "pixi.toml", "go.work", "go.mod", "cabal.project", "dist.ini",
            ".golangci.yml", ".golangci.yaml", "pkgbuild", "jakefile", "jakefile.js", "wrangler.toml", "wrangler.json",
            "wrangler.jsonc", ".rubocop.yml"])),
    rule("build", "Debian's package tools run this file.", PathPattern::Tail(&["debian/rules", "debian/preinst", "debian/postinst",
        "debian/prerm", "debian/postrm", "debian/config"])),
    rule("build", "Bazel runs what this file says.",
        PathPattern::Name(&[".bazelrc", ".bazeliskrc", ".bazelversion", "workspace", "workspace.bazel", "workspace.bzlmod",
            "build", "build.bazel", "module.bazel", "buck"])),
    rule("build", "Bazel is run through this file.", PathPattern::Tail(&["tools/bazel"])),
    rule("build", "A build tool runs what this file says.",
        PathPattern::Ending(&[".mk", ".mak", ".gemspec", ".podspec", ".bzl", ".bazel", ".cmake", ".gradle", ".gradle.kts", ".csproj",
            ".fsproj", ".vbproj", ".vcxproj", ".proj", ".targets", ".props", ".tf", ".tf.json", ".tofu", ".tofu.json", ".ninja", ".cabal", ".nimble",
            ".rockspec", ".rake", ".gyp", ".gypi", ".sbt", ".pro", ".pri"])),
    rule("build", "MSBuild runs what this file says.", PathPattern::Beginning(&["directory.build.", "directory.packages."])),
    rule("build", "A build tool runs what is in here.",
        PathPattern::Within(&[".mvn", ".gradle", "buildsrc", ".terraform", ".bundle"])),
    rule("rust.build", "Cargo compiles and runs this at each build.", PathPattern::Name(&["build.rs"])),
    rule("rust.build", "Cargo takes linkers, runners and wrappers from here.", PathPattern::Within(&[".cargo"])),
    rule("rust.build", "Cargo and rustup take linkers, runners, wrappers or a toolchain from this file.",
        PathPattern::Name(&["rust-toolchain", "rust-toolchain.toml", "cargo.toml", ".rustfmt.toml", "clippy.toml"])),
    rule("container", "Building or starting the container runs what this file says.",
        PathPattern::Beginning(&["dockerfile", "containerfile", "docker-compose", "compose.y", "docker-bake."])),
    rule("container", "Building or starting the container runs what this file says.",
        PathPattern::Ending(&[".dockerfile", ".containerfile"])),
    rule("container", "Editors start this container with its commands.", PathPattern::Within(&[".devcontainer"])),
    rule("container", "Editors start this container with its commands.",
        PathPattern::Name(&[".devcontainer.json", "devfile.yaml", ".gitpod.yml"])),

    // Editors and agents.
    rule("editor", "Editors take tasks, programs and settings from here when the folder is opened.",
        PathPattern::Within(&[".vscode", ".idea", ".fleet", ".zed", ".vs", ".vim", ".nvim", ".emacs.d", ".settings", ".helix"])),
    rule("editor", "Editors take programs and settings from this file when the folder is opened.",
        PathPattern::Name(&[".exrc", ".lvimrc", ".editorconfig", ".ycm_extra_conf.py", ".project"])),
    rule("editor", "Editors take programs and settings from this file when the folder is opened.",
        PathPattern::Beginning(&[".vimrc", ".nvimrc", ".nvim.lua", ".gvimrc", ".emacs", ".dir-locals"])),
    rule("editor", "Editors take programs and settings from this file when the folder is opened.",
        PathPattern::Ending(&[".code-workspace", ".sublime-project", ".iml"])),
    rule("agent", "AI agents take tools, commands, hooks or instructions from here.",
        PathPattern::Within(&[".claude", ".cursor", ".windsurf", ".continue", ".codex", ".gemini", ".aider", ".roo", ".cline",
            ".kiro", ".mcp", ".opencode", ".agents", ".agent", ".amazonq", ".augment", ".junie", ".qwen", ".trae",
            ".goose", ".crush", ".clinerules"])),
    rule("agent", "AI agents take tools, commands, hooks or instructions from this file.",
        PathPattern::Name(&[".mcp.json", "mcp.json", ".claude.json", "claude.md", "claude.local.md", "agents.md", "agent.md",
            "agents.override.md", "gemini.md", "qwen.md", "crush.md", "warp.md", "skill.md", ".cursorrules", ".windsurfrules",
            ".clinerules", ".roorules", ".roomodes", ".goosehints", ".rules", "copilot-instructions.md", "crush.json"])),
    rule("agent", "AI agents take tools, commands, hooks or instructions from this file.",
        PathPattern::Beginning(&[".aider", "opencode.json"])),

    // The rest of a machine.
    rule("desktop", "The desktop or the service manager starts programs that this file names.",
        PathPattern::Ending(&[".desktop", ".service", ".socket", ".timer", ".plist", ".lnk", ".bat", ".cmd", ".ps1", ".scf", ".vbs",
            ".wsf", ".hta", ".url", ".command", ".inf", ".reg", ".scpt"])),
    rule("desktop", "The desktop starts programs that this file names.",
        PathPattern::Name(&["autorun.inf", "desktop.ini", ".directory"])),
    rule("credentials", "Tools take hosts, keys or commands from here.",
        PathPattern::Within(&[".ssh", ".aws", ".kube", ".docker", ".gnupg"])),
    rule("server", "A web server obeys this file.", PathPattern::Name(&[".htaccess", ".user.ini"])),
    rule("credentials", "Tools take hosts, keys or commands from this file.",
        PathPattern::Name(&[".netrc", ".curlrc", ".wgetrc", ".terraformrc", ".my.cnf"])),
];

/// Modules of Python 3 and those that come with it; not those that are built in and found first.
#[rustfmt::skip]
const STANDARD_MODULES: &[&str] = &[
    "abc", "aifc", "annotationlib", "antigravity", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore", "base64",
    "bdb", "binascii", "bisect", "bz2", "calendar", "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop",
    "collections", "colorsys", "compileall", "compression", "concurrent", "configparser", "contextlib", "contextvars", "copy",
    "copyreg", "cprofile", "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal", "difflib", "dis",
    "distutils", "doctest", "email", "encodings", "ensurepip", "enum", "fcntl", "filecmp", "fileinput", "fnmatch", "formatter",
    "fractions", "ftplib", "functools", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib", "grp", "gzip",
    "hashlib", "heapq", "hmac", "html", "http", "idlelib", "imaplib", "imghdr", "imp", "importlib", "inspect", "io",
    "ipaddress", "json", "keyword", "linecache", "locale", "logging", "lzma", "mailbox", "mailcap", "math", "mimetypes", "mmap",
    "modulefinder", "multiprocessing", "netrc", "nis", "nntplib", "ntpath", "nturl2path", "numbers", "opcode", "operator",
    "optparse", "os", "ossaudiodev", "parser", "pathlib", "pdb", "pickle", "pickletools", "pip", "pipes", "pkg_resources",
    "pkgutil", "platform", "plistlib", "poplib", "posixpath", "pprint", "profile", "pstats", "pty", "py_compile", "pyclbr",
    "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re", "readline", "reprlib", "resource", "rlcompleter",
    "runpy", "sched", "secrets", "select", "selectors", "setuptools", "shelve", "shlex", "shutil", "signal", "site", "smtpd",
    "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3", "sre_compile", "sre_constants", "sre_parse", "ssl", "stat",
    "statistics", "string", "stringprep", "struct", "subprocess", "sunau", "symbol", "symtable", "sysconfig", "syslog",
    "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap", "this", "threading", "timeit", "tkinter",
    "token", "tokenize", "tomllib", "trace", "traceback", "tracemalloc", "tty", "turtle", "types", "typing", "unicodedata",
    "unittest", "urllib", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser", "wheel", "wsgiref", "xdrlib",
    "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib", "zoneinfo",
];
