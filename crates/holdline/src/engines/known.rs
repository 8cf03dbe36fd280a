//! The table of the engines that a URL can name, whether or not this build has them.

/// An engine that a URL can name, whether or not this build has it.
pub(crate) struct KnownEngine {
    pub(crate) name: &'static str,
    /// Its cargo feature; `None` if every build has it.
    pub(crate) feature: Option<&'static str>,
    pub(crate) is_built: bool,
    schemes: &'static [&'static str],
}

const KNOWN: &[KnownEngine] = &[
    KnownEngine {
        name: "etcd",
        feature: Some("etcd"),
        is_built: cfg!(feature = "etcd"),
        schemes: &["etcd", "etcds"],
    },
    KnownEngine {
        name: "http",
        feature: Some("http"),
        is_built: cfg!(feature = "http"),
        schemes: &["http", "https", "http+unix"],
    },
    KnownEngine {
        name: "local",
        feature: Some("local"),
        is_built: cfg!(feature = "local"),
        schemes: &["local"],
    },
    KnownEngine { name: "memory", feature: None, is_built: true, schemes: &["memory"] },
    KnownEngine {
        name: "mysql",
        feature: Some("mysql"),
        is_built: cfg!(feature = "mysql"),
        schemes: &["mysql", "mariadb"],
    },
    KnownEngine {
        name: "postgres",
        feature: Some("postgres"),
        is_built: cfg!(feature = "postgres"),
        schemes: &["postgres", "postgresql"],
    },
    KnownEngine {
        name: "redis",
        feature: Some("redis"),
        is_built: cfg!(feature = "redis"),
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis-cluster",
            "rediss-cluster",
        ],
    },
    KnownEngine {
        name: "redlock",
        feature: Some("redis"),
        is_built: cfg!(feature = "redis"),
        schemes: &["redlock", "redlocks"],
    },
    KnownEngine {
        name: "zookeeper",
        feature: Some("zookeeper"),
        is_built: cfg!(feature = "zookeeper"),
        schemes: &["zk", "zks"],
    },
];
/// Other names of these engines.
pub(crate) const OTHER_NAMES: &[(&str, &str)] = &[
    ("zookeeper", "zk"),
    ("etcd3", "etcd"),
    ("pg", "postgres"),
    ("pgsql", "postgres"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("unix", "redis+unix"),
    ("redis+socket", "redis+unix"),
    ("unix+http", "http+unix"),
    ("http+socket", "http+unix"),
    ("sentinel", "redis+sentinel"),
    ("redis-sentinel", "redis+sentinel"),
    ("rediss-sentinel", "rediss+sentinel"),
    ("redis+cluster", "redis-cluster"),
    ("rediss+cluster", "rediss-cluster"),
    ("file", "local"),
];

/// Returns the engine of a scheme, whether or not this build has it.
pub(crate) fn known_engine(scheme: &str) -> Option<&'static KnownEngine> {
    KNOWN.iter().find(|engine| engine.schemes.contains(&scheme))
}

/// Returns the schemes of the engines that this build has.
pub(crate) fn schemes() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter(|engine| engine.is_built).flat_map(|engine| engine.schemes).copied()
}

/// Returns OpenTelemetry's name of the database behind an engine, `db.system.name`; `None` for an
/// engine without one, or if only its server knows.
pub(crate) fn db_system(engine: &str) -> Option<&'static str> {
    match engine {
        "redis" | "redlock" => Some("redis"),
        "postgres" => Some("postgresql"),
        "mysql" => Some("mariadb"),
        "etcd" => Some("etcd"),
        "zookeeper" => Some("zookeeper"),
        "local" => Some("sqlite"),
        _ => None,
    }
}
