//! Names that programs use as if everybody had imported them, and where they come from.

/// Modules under their own names, of which any attribute may be used.
#[rustfmt::skip]
pub(super) const MODULES: &[&str] = &[
    "argparse", "ast", "asyncio", "atexit", "base64", "binascii", "bisect", "bz2", "cProfile", "cmath", "codecs",
    "colorsys", "configparser", "contextlib", "contextvars", "csv", "ctypes", "curses", "dataclasses", "decimal",
    "difflib", "dis", "enum", "errno", "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "fractions",
    "ftplib", "functools", "gc", "getpass", "gettext", "graphlib", "gzip", "hashlib", "heapq", "hmac", "imaplib",
    "inspect", "io", "ipaddress", "itertools", "json", "linecache", "lzma", "marshal", "math", "mimetypes", "mmap",
    "ntpath", "os", "pathlib", "pdb", "pickle", "pkgutil", "plistlib", "posixpath", "pstats", "re", "runpy",
    "sched", "selectors", "shelve", "shlex", "shutil", "smtplib", "socketserver", "sqlite3", "ssl", "subprocess",
    "sys", "sysconfig", "syslog", "tarfile", "tempfile", "termios", "textwrap", "threading", "timeit", "tkinter",
    "tokenize", "tracemalloc", "turtle", "typing", "unicodedata", "weakref", "webbrowser", "zipfile", "zlib",
    "zoneinfo",
];

/// The same, not of the standard library.
#[rustfmt::skip]
pub(super) const OTHER_MODULES: &[&str] = &[
    "aiohttp", "altair", "bokeh", "boto3", "bs4", "cv2", "dask", "django", "fastapi", "flask", "httpx", "jax",
    "jinja2", "joblib", "lightgbm", "lxml", "msgpack", "nltk", "numba", "numpy", "openai", "openpyxl", "orjson",
    "pandas", "paramiko", "plotly", "polars", "psutil", "psycopg2", "pyarrow", "pydantic", "pygame", "pymongo",
    "pytest", "pytz", "redis", "requests", "rich", "seaborn", "spacy", "sqlalchemy", "statsmodels", "streamlit",
    "sympy", "tabulate", "tensorflow", "tiktoken", "toml", "torch", "torchvision", "transformers", "ujson",
    "urllib3", "websockets", "xgboost", "yaml",
];

/// Modules whose names are ordinary words, each with what makes a use of it a use of the module: `queue.Queue` is one,
/// `queue.append` is somebody's list.
pub(super) const WORDS: &str = "\
abc: ABC ABCMeta abstractmethod abstractproperty abstractclassmethod abstractstaticmethod
array: array typecodes
calendar: Calendar HTMLCalendar TextCalendar calendar day_abbr day_name isleap leapdays month month_abbr month_name
    monthcalendar monthrange prcal prmonth setfirstweekday timegm weekday
copy: copy deepcopy replace
datetime: MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo
glob: escape glob has_magic iglob
locale: LC_ALL LC_COLLATE LC_CTYPE LC_MONETARY LC_NUMERIC LC_TIME atof atoi currency format_string getdefaultlocale
    getencoding getlocale getpreferredencoding localeconv setlocale strcoll strxfrm
operator: abs add and_ attrgetter concat contains countOf delitem eq floordiv ge getitem gt iadd imul index indexOf
    inv invert is_ is_not isub itemgetter itruediv le lshift lt matmul methodcaller mod mul ne neg not_ or_ pos pow
    rshift setitem sub truediv truth xor
platform: architecture freedesktop_os_release libc_ver machine node platform processor python_compiler
    python_implementation python_version python_version_tuple release system uname version
pprint: PrettyPrinter isreadable isrecursive pformat pp pprint saferepr
queue: Empty Full LifoQueue PriorityQueue Queue ShutDown SimpleQueue
random: Random SystemRandom betavariate binomialvariate choice choices expovariate gammavariate gauss getrandbits
    getstate lognormvariate normalvariate paretovariate randbytes randint random randrange sample seed setstate
    shuffle triangular uniform vonmisesvariate weibullvariate
secrets: SystemRandom choice compare_digest randbelow randbits token_bytes token_hex token_urlsafe
select: EPOLLIN EPOLLOUT POLLERR POLLHUP POLLIN POLLOUT epoll poll select
signal: ITIMER_REAL SIGALRM SIGCHLD SIGHUP SIGINT SIGKILL SIGPIPE SIGQUIT SIGTERM SIGUSR1 SIGUSR2 SIG_BLOCK SIG_DFL
    SIG_IGN Signals alarm getsignal pause pthread_sigmask raise_signal setitimer signal strsignal
statistics: NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean kde
    linear_regression mean median median_grouped median_high median_low mode multimode pstdev pvariance quantiles
    stdev variance
string: Formatter Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits
    printable punctuation whitespace
struct: Struct calcsize error iter_unpack pack pack_into unpack unpack_from
time: CLOCK_MONOTONIC CLOCK_REALTIME altzone asctime clock_gettime ctime daylight gmtime localtime mktime monotonic
    monotonic_ns perf_counter perf_counter_ns process_time process_time_ns sleep strftime strptime struct_time
    thread_time time time_ns timezone tzname tzset
types: AsyncGeneratorType BuiltinFunctionType CodeType CoroutineType EllipsisType FrameType FunctionType
    GeneratorType GenericAlias LambdaType MappingProxyType MethodType ModuleType NoneType SimpleNamespace
    TracebackType UnionType coroutine new_class
keyword: iskeyword issoftkeyword kwlist softkwlist
numbers: Complex Integral Number Rational Real
pwd: getpwall getpwnam getpwuid
resource: RLIMIT_AS RLIMIT_CPU RLIMIT_NOFILE RLIMIT_STACK RUSAGE_CHILDREN RUSAGE_SELF getrlimit getrusage setrlimit
socket: AF_INET AF_INET6 AF_UNIX SHUT_RDWR SOCK_DGRAM SOCK_STREAM SOL_SOCKET SO_REUSEADDR create_connection
    create_server error getaddrinfo getfqdn gethostbyaddr gethostbyname gethostname htons inet_aton inet_ntoa
    inet_ntop inet_pton ntohs setdefaulttimeout socket socketpair timeout
stat: S_IMODE S_IRUSR S_IRWXU S_ISDIR S_ISLNK S_ISREG S_IWUSR S_IXUSR ST_MODE ST_MTIME ST_SIZE filemode
traceback: FrameSummary StackSummary TracebackException extract_stack extract_tb format_exc format_exception
    format_exception_only format_list format_stack format_tb print_exc print_exception print_last print_stack
    print_tb walk_stack walk_tb
uuid: NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 SafeUUID UUID getnode uuid1 uuid3 uuid4 uuid5
warnings: catch_warnings filterwarnings formatwarning resetwarnings showwarning simplefilter warn warn_explicit
tqdm: auto contrib notebook tqdm trange";

/// Packages of which parts have to be imported by themselves: what is there without them, and the parts.
#[rustfmt::skip]
pub(super) const PACKAGES: &[(&str, Plain, &[&str])] = &[
    ("collections", Plain::Only(&["ChainMap", "Counter", "OrderedDict", "UserDict", "UserList", "UserString",
        "defaultdict", "deque", "namedtuple"]), &["abc"]),
    ("concurrent", Plain::Only(&[]), &["futures"]),
    ("email", Plain::Only(&["message_from_bytes", "message_from_file", "message_from_string"]), &["encoders",
        "header", "message", "mime.application", "mime.base", "mime.image", "mime.multipart", "mime.text",
        "parser", "policy", "utils"]),
    ("html", Plain::Only(&["escape", "unescape"]), &["entities", "parser"]),
    ("http", Plain::Only(&["HTTPMethod", "HTTPStatus"]), &["client", "cookiejar", "cookies", "server"]),
    ("importlib", Plain::Only(&["import_module", "invalidate_caches", "reload"]), &["abc", "machinery",
        "metadata", "resources", "util"]),
    ("logging", Plain::All, &["config", "handlers"]),
    ("multiprocessing", Plain::All, &["dummy", "managers", "pool", "shared_memory"]),
    ("unittest", Plain::All, &["mock"]),
    ("urllib", Plain::Only(&[]), &["error", "parse", "request", "response", "robotparser"]),
    ("xml", Plain::Only(&[]), &["dom.minidom", "etree.ElementTree", "sax"]),
    // Not of the standard library.
    ("PIL", Plain::Only(&[]), &["Image", "ImageDraw", "ImageEnhance", "ImageFilter", "ImageFont", "ImageOps"]),
    ("matplotlib", Plain::All, &["animation", "cm", "colors", "dates", "figure", "gridspec", "patches", "pyplot",
        "ticker"]),
    ("networkx", Plain::All, &[]),
    ("scipy", Plain::Only(&[]), &["cluster", "constants", "fft", "integrate", "interpolate", "io", "linalg",
        "ndimage", "optimize", "signal", "sparse", "spatial", "special", "stats"]),
    ("sklearn", Plain::Only(&[]), &["cluster", "compose", "datasets", "decomposition", "ensemble",
        "feature_extraction", "feature_selection", "impute", "linear_model", "manifold", "metrics",
        "model_selection", "naive_bayes", "neighbors", "neural_network", "pipeline", "preprocessing", "svm",
        "tree"]),
];

/// What a package has without its parts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plain {
    All,
    Only(&'static [&'static str]),
}

/// Modules under the short names that their own documentation uses.
pub(super) const ALIASES: &str = "\
ET=xml.etree.ElementTree mp=multiprocessing tk=tkinter gpd=geopandas go=plotly.graph_objects jnp=jax.numpy
lgb=lightgbm mpl=matplotlib nn=torch.nn np=numpy nx=networkx optim=torch.optim pa=pyarrow pd=pandas
plt=matplotlib.pyplot px=plotly.express sm=statsmodels.api smf=statsmodels.formula.api sns=seaborn tf=tensorflow
xgb=xgboost xr=xarray";

/// Names that mean one thing wherever they stand.
pub(super) const NAMES: &str = "\
abc: ABC ABCMeta abstractmethod
argparse: ArgumentParser
collections: ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple
concurrent.futures: ProcessPoolExecutor ThreadPoolExecutor as_completed
configparser: ConfigParser
contextlib: AsyncExitStack ExitStack asynccontextmanager contextmanager nullcontext redirect_stdout redirect_stderr
copy: deepcopy
dataclasses: asdict astuple dataclass is_dataclass
datetime: timedelta timezone
decimal: Decimal ROUND_DOWN ROUND_HALF_EVEN ROUND_HALF_UP getcontext localcontext
difflib: SequenceMatcher get_close_matches
enum: Enum Flag IntEnum IntFlag StrEnum
fractions: Fraction
functools: cached_property cmp_to_key lru_cache partialmethod singledispatch singledispatchmethod total_ordering
html.parser: HTMLParser
http: HTTPStatus
http.server: BaseHTTPRequestHandler HTTPServer SimpleHTTPRequestHandler
io: BytesIO StringIO TextIOWrapper
ipaddress: IPv4Address IPv4Network IPv6Address IPv6Network ip_address ip_network
operator: attrgetter itemgetter methodcaller
pathlib: Path PosixPath PurePath PurePosixPath PureWindowsPath
string: ascii_letters ascii_lowercase ascii_uppercase hexdigits
tempfile: NamedTemporaryFile TemporaryDirectory mkdtemp mkstemp
threading: Thread
types: MappingProxyType SimpleNamespace
typing: Annotated Any AsyncGenerator AsyncIterable AsyncIterator Awaitable Callable ClassVar Coroutine DefaultDict
    Deque Dict Final FrozenSet Generator Generic Hashable IO Iterable Iterator List Literal Mapping MutableMapping
    MutableSequence MutableSet NamedTuple NewType NoReturn Optional ParamSpec Protocol Sequence Set SupportsFloat
    SupportsInt TYPE_CHECKING TextIO Tuple Type TypeAlias TypeVar TypedDict Union get_type_hints runtime_checkable
unittest: TestCase
unittest.mock: AsyncMock MagicMock Mock
urllib.parse: parse_qs quote_plus urlencode urljoin urlparse urlsplit urlunparse
urllib.request: urlopen urlretrieve
uuid: UUID uuid1 uuid3 uuid4 uuid5
zipfile: ZipFile
zoneinfo: ZoneInfo
PIL: Image ImageDraw ImageFont
bs4: BeautifulSoup
fastapi: FastAPI HTTPException
flask: Flask jsonify render_template
pydantic: BaseModel
sklearn.cluster: DBSCAN KMeans
sklearn.datasets: load_breast_cancer load_digits load_iris make_blobs make_classification
sklearn.decomposition: PCA
sklearn.ensemble: GradientBoostingClassifier GradientBoostingRegressor RandomForestClassifier RandomForestRegressor
sklearn.linear_model: Lasso LinearRegression LogisticRegression Ridge
sklearn.metrics: accuracy_score classification_report confusion_matrix f1_score mean_absolute_error
    mean_squared_error precision_score r2_score recall_score roc_auc_score
sklearn.model_selection: GridSearchCV KFold cross_val_score train_test_split
sklearn.neighbors: KNeighborsClassifier KNeighborsRegressor
sklearn.preprocessing: LabelEncoder MinMaxScaler OneHotEncoder StandardScaler
sklearn.svm: SVC SVR
sklearn.tree: DecisionTreeClassifier DecisionTreeRegressor";

/// Functions whose names are ordinary words: only where every use is a call, or a decorator.
pub(super) const CALLED: &str = "\
copy: copy
contextlib: closing suppress
dataclasses: field fields
datetime: date
enum: auto
functools: cache partial reduce wraps
getpass: getpass
glob: glob iglob
heapq: heapify heappop heappush nlargest nsmallest
bisect: bisect_left bisect_right insort
itertools: accumulate chain combinations combinations_with_replacement compress cycle dropwhile groupby islice
    pairwise permutations product starmap takewhile tee zip_longest
math: factorial gcd isclose isqrt
multiprocessing: Pool Process
pprint: pformat pprint
random: choice choices randint randrange shuffle
statistics: fmean pstdev stdev
textwrap: dedent indent
time: perf_counter sleep
typing: cast overload
tqdm: tqdm trange";

/// Methods by which a class is told from the module of the same name: `datetime.now()`. Names that both have
/// (`datetime.date`) are the module's.
#[rustfmt::skip]
pub(super) const DATETIME_CLASS: &[&str] = &[
    "astimezone", "combine", "ctime", "fromisocalendar", "fromisoformat", "fromordinal", "fromtimestamp",
    "isocalendar", "isoformat", "isoweekday", "max", "min", "now", "replace", "resolution", "strftime", "strptime",
    "timestamp", "today", "toordinal", "utcfromtimestamp", "utcnow", "weekday",
];

/// Lines of `module: name name`; one that begins with a blank goes on with the module before it.
pub(super) fn of_modules(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut module = "";
    table.lines().flat_map(move |line| {
        let names = match line.split_once(':') {
            Some((of, names)) => {
                module = of;
                names
            }
            None => line,
        };
        let of = module;
        names.split_ascii_whitespace().map(move |name| (of, name))
    })
}
