//! Text that other programs use as a connection string, and URLs with stray white space: what
//! `HOLDLINE_URL` holds in the field.

use crate::world::{CommandOutput, World, output};

/// The password in all of them. No output may contain it.
const CANARY: &str = "CANARY";

/// Connection strings of other programs, and Holdline URLs that were damaged on the way. None of
/// them names a server that answers.
const FOREIGN: &[&str] = &[
    // libpq's keywords, its service, and a damaged URL.
    "host=h password=CANARY",
    "host=127.0.0.1 port=1 dbname=d user=u password='CANARY CANARY'",
    "password=CANARY",
    "CANARY",
    "CANARY@127.0.0.1:1",
    "u:CANARY@127.0.0.1:1/d",
    "CANARY:u@127.0.0.1",
    "CANARY:",
    "CANARY:127.0.0.1",
    "://u:CANARY@h",
    "//u:CANARY@h/d",
    "postgres:u:CANARY@h/d",
    "postgres:/u:CANARY@h/d",
    "postgres//u:CANARY@h/d",
    "postgres://u:CANARY",
    "postgres://u:CANARY:5432/d",
    "postgres://u:CANARY/d",
    "postgres://h/d?user=u&password=CANARY",
    "postgres://u@h/d?sslmode=disable;password=CANARY",
    "postgres://u@h/d?options=-c%20a=CANARY",
    "postgres://u@h/d?password=CANARY",
    "postgres://u@h/d password=CANARY",
    "postgres://u:CANARY%@127.0.0.1:1/d",
    "postgres://u:CANARY%zz@127.0.0.1:1/d",
    "postgres://u:CANARY%ff@127.0.0.1:1/d",
    "postgres://u:a?CANARY@127.0.0.1:1/d",
    "postgres://u:a?CANARY&b@127.0.0.1:1/d",
    "postgres://u:CANARY CANARY@127.0.0.1:1/d",
    "\"postgres://u:CANARY@127.0.0.1:1/d\"",
    "HOLDLINE_URL=postgres://u:CANARY@127.0.0.1:1/d",
    "export HOLDLINE_URL=postgres://u:CANARY@127.0.0.1:1/d",
    "postgres://u:CANARY@127.0.0.1:1/d\n",
    " postgres://u:CANARY@127.0.0.1:1/d",
    // JDBC, ODBC, .NET, SQLAlchemy, Django, PDO, MySQL's drivers.
    "jdbc:postgresql://127.0.0.1/d?user=u&password=CANARY",
    "jdbc:mysql://u:CANARY@127.0.0.1/d",
    "jdbc:sqlserver://h:1433;databaseName=d;user=u;password=CANARY",
    "jdbc:oracle:thin:u/CANARY@h:1521/d",
    "Driver={PostgreSQL Unicode};Server=h;Uid=u;Pwd=CANARY;",
    "DSN=d;UID=u;PWD=CANARY",
    "Server=h;Port=3306;Database=d;Uid=u;Pwd=CANARY;SslMode=Required",
    "Server=tcp:h,1433;User ID=u;Password=CANARY;Encrypt=True",
    "postgresql+psycopg2://u:CANARY@127.0.0.1:1/d",
    "postgresql+asyncpg://u:CANARY@127.0.0.1:1/d",
    "mysql+pymysql://u:CANARY@127.0.0.1:1/d",
    "postgis://u:CANARY@127.0.0.1:1/d",
    "pgsql:host=h;dbname=d;user=u;password=CANARY",
    "mysql:host=h;dbname=d;password=CANARY",
    "u:CANARY@tcp(127.0.0.1:1)/d?tls=true",
    "u:CANARY@unix(/run/mysqld.sock)/d",
    "mysql://h/d?user=u&password=CANARY",
    "mysql://u:CANARY@tcp(127.0.0.1:1)/d",
    "mysql -u u -pCANARY -h h d",
    "PGPASSWORD=CANARY psql -h h",
    // Redis's clients.
    "redis-cli -h 127.0.0.1 -a CANARY",
    "127.0.0.1:1,password=CANARY,ssl=True,abortConnect=False",
    "redis://127.0.0.1:1,password=CANARY,ssl=True",
    "redis://127.0.0.1:1/0;password=CANARY",
    "redis://127.0.0.1:1?db=0;password=CANARY",
    "redis://127.0.0.1:1?db=0,password=CANARY",
    "redis://127.0.0.1:1?ssl=true;password=CANARY",
    "redis://127.0.0.1:1?CANARY",
    "redis://u:p?CANARY&x@127.0.0.1:1",
    "redis://u:p?CANARY&CANARY&x@127.0.0.1:1",
    "redis://u:p?db=0&CANARY&x@127.0.0.1:1",
    "redis://:CANARY",
    "redis://u:CANARY",
    "rediss://:CANARY@127.0.0.1:1",
    "rediss://:CANARY@127.0.0.1:1 ",
    "redis:CANARY@127.0.0.1:1",
    "tcp://127.0.0.1:1?auth=CANARY",
    "redis-sentinel://CANARY@127.0.0.1:1/0#master",
    "redlock://:CANARY@127.0.0.1:1,:CANARY@127.0.0.1:2,:CANARY@127.0.0.1:3",
    // Other stores, queues and services.
    "mongodb://u:CANARY@127.0.0.1:1/d?authSource=admin",
    "mongodb+srv://u:CANARY@h.example/d",
    "amqp://u:CANARY@127.0.0.1:1/%2f",
    "sqlserver://u:CANARY@127.0.0.1:1?database=d",
    "snowflake://u:CANARY@account/d",
    "oracle+cx_oracle://u:CANARY@h/d",
    "sqlite:///CANARY.db?mode=ro",
    "s3://key:CANARY@bucket/path",
    "https://u:CANARY@127.0.0.1:1/x",
    "http://127.0.0.1:1/?token=CANARY",
    "http://127.0.0.1:1?api_key=CANARY",
    "etcd://127.0.0.1:1?password=CANARY",
    "etcd://root:CANARY@127.0.0.1:1/",
    "zk://digest:u:CANARY@127.0.0.1:1",
    "zk://127.0.0.1:1/a b?auth=CANARY",
    "zookeeper://u:CANARY@127.0.0.1:1",
    "ldap://cn=admin:CANARY@h",
    "Endpoint=sb://h/;SharedAccessKeyName=k;SharedAccessKey=CANARY",
    "AccountName=a;AccountKey=CANARY;EndpointSuffix=core.windows.net",
    "{\"host\":\"h\",\"password\":\"CANARY\"}",
    "local:password=CANARY",
    "local:?password=CANARY",
    "memory:?CANARY",
    "localhost;password=CANARY",
];

fn with_url(world: &World, url: &str, arguments: &[&str]) -> CommandOutput {
    output(world.command(arguments).env("HOLDLINE_URL", url))
}

#[test]
fn no_connection_string_of_another_program_is_shown() {
    let world = World::new();
    let verbs: &[&[&str]] = &[
        &["-v", "run", "--try", "a", "--", "true"],
        &["--json", "-v", "run", "--try", "a", "--", "true"],
        &["-v", "who", "a"],
        &["--json", "ls"],
        &["-v", "doctor"],
        &["--json", "doctor"],
        &["-v", "explain"],
        &["--json", "explain"],
        &["quorum", "status"],
        &["-v", "audit"],
    ];
    let shown: Vec<String> = std::thread::scope(|scope| {
        let halves = FOREIGN.chunks(FOREIGN.len().div_ceil(4));
        let work = |urls: &'static [&str]| {
            let world = &world;
            move || {
                let mut shown = Vec::new();
                for url in urls {
                    for verb in verbs {
                        let seen = with_url(world, url, verb);
                        let text = format!("{}{}", seen.stdout, seen.stderr);
                        if text.contains(CANARY) || seen.code == 0 {
                            shown.push(format!("{url:?} {verb:?}: {} {text}", seen.code));
                        }
                    }
                }
                shown
            }
        };
        let threads: Vec<_> = halves.map(|urls| scope.spawn(work(urls))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(shown.is_empty(), "{} times:\n{}", shown.len(), shown.join("\n"));
}

#[test]
fn a_configuration_file_without_a_url_of_ours_is_not_shown() {
    let world = World::new();
    for (text, code) in [
        ("url = 'host=h password=CANARY'", 78),
        ("url = \"host=h password=CANARY", 78),
        ("postgres://u:CANARY@h/d", 78),
        ("password=CANARY", 78),
        ("url = postgres://u:CANARY@h/d", 78),
        ("url = ['postgres://u:CANARY@h/d']", 78),
        ("url = 'postgres://u:CANARY@h/d '", 78),
    ] {
        std::fs::write(world.path("holdline.toml"), text).expect("written");
        let mut command = world.command(&["-v", "who", "a"]);
        let seen =
            output(command.env("HOLDLINE_CONFIG", "holdline.toml").env_remove("HOLDLINE_URL"));
        assert_eq!(seen.code, code, "{text}: {seen:?}");
        assert!(!format!("{seen:?}").contains(CANARY), "{text}: {seen:?}");
    }
}

#[test]
fn the_message_names_the_way_to_write_it() {
    let world = World::new();
    for (url, says) in [
        ("host=h password=CANARY", "postgres://USER@HOST/DATABASE"),
        ("u:CANARY@tcp(h)/d", "mysql://USER@HOST/DATABASE"),
        ("jdbc:postgresql://h/d?password=CANARY", "without `jdbc:`"),
        ("postgresql+psycopg2://u:CANARY@h/d", "`postgresql:`"),
        ("mysql+pymysql://u:CANARY@h/d", "`mysql:`"),
        ("\"redis://h\"", "quotation mark"),
        ("redis-cli -a CANARY", "no scheme"),
        ("mongodb://u:CANARY@h", "no engine"),
    ] {
        let seen = with_url(&world, url, &["who", "a"]);
        assert_eq!(seen.code, 78, "{url}: {seen:?}");
        assert!(seen.stderr.contains(says), "{url}: {}", seen.stderr);
    }
}

#[test]
fn white_space_at_an_end_of_a_url_makes_no_second_store() {
    let world = World::new();
    let urls = [
        world.url(),
        "memory:".to_owned(),
        "memory:a".to_owned(),
        "redis://u:CANARY@127.0.0.1:1/0".to_owned(),
        "redis://127.0.0.1:1?prefix=a".to_owned(),
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3".to_owned(),
        "redis+sentinel://127.0.0.1:1/name".to_owned(),
        "redis-cluster://127.0.0.1:1".to_owned(),
        "postgres://u:CANARY@127.0.0.1:1/d".to_owned(),
        "postgres://u@127.0.0.1:1/d?schema=s".to_owned(),
        "mysql://u:CANARY@127.0.0.1:1/d".to_owned(),
        "etcd://127.0.0.1:1".to_owned(),
        "zk://127.0.0.1:1/root".to_owned(),
        "http://127.0.0.1:1".to_owned(),
    ];
    for url in &urls {
        for (stray, named) in [
            ("\n", "line feed"),
            ("\r", "carriage return"),
            ("\r\n", "line feed"),
            (" ", "blank"),
            ("\t", "tab"),
            ("\u{a0}", "U+00A0"),
        ] {
            let seen = with_url(&world, &format!("{url}{stray}"), &["run", "a", "--", "true"]);
            let says = format!("HOLDLINE_URL: the URL ends with a {named}");
            let says = if stray == "\u{a0}" { named.to_owned() } else { says };
            assert_eq!(seen.code, 78, "{url}{stray:?}: {seen:?}");
            assert!(seen.stderr.contains(&says), "{url}{stray:?}: {}", seen.stderr);
            assert!(!format!("{seen:?}").contains(CANARY), "{seen:?}");
        }
    }
    let url = world.url();
    assert!(with_url(&world, &format!(" {url}"), &["who", "a"]).stderr.contains("begins with"));
    let flag = world.run(&["--url", &format!("{url}\n"), "run", "a", "--", "true"]);
    assert!(flag.code == 78 && flag.stderr.contains("--url: the URL ends with"), "{flag:?}");
    for verb in ["doctor", "explain"] {
        let seen = world.run(&[verb, &format!("{url}\t")]);
        assert!(seen.code == 78 && seen.stderr.contains("a tab"), "{seen:?}");
    }
    std::fs::write(world.path("holdline.toml"), format!("url = \"{url}\\n\"")).expect("written");
    let file = output(world.command(&["ls"]).env_remove("HOLDLINE_URL"));
    let says = "holdline.toml: the URL ends with a line feed";
    assert!(file.code == 78 && file.stderr.contains(says), "{file:?}");
    assert!(!world.path("store").exists(), "no store was made");
}

#[test]
fn white_space_at_an_end_of_a_password_variable_is_refused() {
    let world = World::new();
    for (url, variable) in [
        ("redis://u@127.0.0.1:1?password_env=PW", "PW"),
        ("redlock://u@127.0.0.1:1,127.0.0.1:2?password_env=PW", "PW"),
        ("redis+sentinel://127.0.0.1:1/a?sentinel_password_env=PW", "PW"),
        ("postgres://u@127.0.0.1:1/d?password_env=PW", "PW"),
        ("mysql://u@127.0.0.1:1/d?password_env=PW", "PW"),
        ("etcd://127.0.0.1:1?user=u&password_env=PW", "PW"),
        ("zk://127.0.0.1:1?user=u&password_env=PW", "PW"),
        ("http://127.0.0.1:1?token_env=PW", "PW"),
    ] {
        let mut command = world.command(&["who", "a"]);
        let seen = output(command.env("HOLDLINE_URL", url).env(variable, "CANARY\n"));
        assert_eq!(seen.code, 78, "{url}: {seen:?}");
        assert!(seen.stderr.contains("variable PW ends with a line feed"), "{url}: {seen:?}");
        assert!(!format!("{seen:?}").contains(CANARY), "{url}: {seen:?}");
    }
}

#[test]
fn the_scheme_of_a_url_may_be_in_upper_case() {
    let world = World::new();
    let held = world.hold(&["a"]);
    let url = world.url().replacen("local:", "LOCAL:", 1);
    assert_eq!(with_url(&world, &url, &["who", "a"]).code, 0, "it is the same store");
    assert!(world.run(&["explain", "Memory:"]).stdout.starts_with("memory: "));
    drop(held);
}
