//! The socket of this machine, and the proxies that use it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdline_server::{Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::ground::{Ground, request, store};
use crate::rights::{S3CRET, config};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("hl-sock-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("made");
        Directory(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running(oneshot::Sender<()>, JoinHandle<()>);

impl Running {
    async fn stop(self) {
        drop(self.0);
        self.1.await.expect("no panic");
    }
}

async fn serve(text: &str) -> Result<Running, String> {
    let config = ServerConfig::from_toml(text).expect("good");
    let server = Server::bind(store().await.admin().engine().clone(), &config).await;
    let server = server.map_err(|error| error.to_string())?;
    assert!(server.address().is_none(), "a socket only");
    let (stop, stopped) = oneshot::channel::<()>();
    let running = server.run(async {
        let _ = stopped.await;
    });
    Ok(Running(stop, tokio::spawn(running)))
}

async fn ask(path: &Path, method: &str, at: &str, headers: &str) -> u16 {
    let mut stream = UnixStream::connect(path).await.expect("connects");
    let headers = format!("Connection: close\r\n{headers}");
    stream.write_all(request(method, at, &headers, "").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[tokio::test]
async fn the_mode_of_the_socket_says_who_may_connect() {
    let directory = Directory::new("mode");
    let path = directory.socket();
    let text = format!("[server.socket]\npath = {path:?}\n");
    let running = serve(&text).await.expect("listens");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(ask(&path, "POST", "/v1/locks/a", "").await, 200);
    let error = serve(&text).await.err().expect("the other server runs");
    assert!(error.contains("another server listens on it"), "{error}");
    running.stop().await;
    assert!(!path.exists(), "the file is removed");
    std::fs::write(&path, "data").expect("written");
    let error = serve(&text).await.err().expect("a file");
    assert!(error.contains("no socket"), "{error}");
    std::fs::remove_file(&path).expect("removed");
    // What a killed server leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    let running = serve(&format!("{text}mode = \"0660\"\n")).await.expect("listens");
    assert_eq!(mode(&path), 0o660);
    assert_eq!(ask(&path, "POST", "/v1/locks/a", "").await, 200);
    running.stop().await;
}

#[tokio::test]
async fn over_the_socket_the_user_of_the_process_is_the_identity() {
    let directory = Directory::new("users");
    let path = directory.socket();
    let text = config("ci", S3CRET, r#"["lock", "view"]"#, "")
        + &format!(
            "[server.socket]\npath = {path:?}\nusers = [{{ name = \"me\", uid = {}, rights = \
             [\"lock\"], prefixes = [\"a\"] }}]\n",
            own_uid()
        );
    let running = serve(&text).await.expect("listens");
    assert_eq!(ask(&path, "POST", "/v1/locks/a", "").await, 200);
    assert_eq!(ask(&path, "POST", "/v1/locks/b", "").await, 403);
    let token = "Authorization: Bearer s3cret\r\n";
    assert_eq!(ask(&path, "GET", "/v1/locks/a", token).await, 403, "the rights that both give");
    running.stop().await;
    let others = text.replace(&format!("uid = {}", own_uid()), "uid = 4294967294");
    let running = serve(&others).await.expect("listens");
    assert_eq!(ask(&path, "POST", "/v1/locks/b", "").await, 401, "no entry");
    assert_eq!(ask(&path, "POST", "/v1/locks/b", token).await, 200, "the token's");
    running.stop().await;
}

const PROXY: &str = "[server.proxy]\nheader = \"X-Forwarded-User\"\n\
    users = [{ name = \"ana\", rights = [\"admin\"] }]\n";
const ANA: &str = "X-Forwarded-User: ana\r\n";

#[tokio::test]
async fn the_header_of_a_proxy_counts_over_the_socket_from_its_user_only() {
    let directory = Directory::new("proxy");
    let path = directory.socket();
    let text = |uid| format!("{PROXY}uids = [{uid}]\n[server.socket]\npath = {path:?}\n");
    let running = serve(&text(own_uid())).await.expect("listens");
    assert_eq!(ask(&path, "POST", "/v1/locks/a", ANA).await, 200);
    assert_eq!(ask(&path, "POST", "/v1/locks/a", "").await, 401, "a person without a name");
    assert_eq!(ask(&path, "POST", "/v1/locks/a", "X-Forwarded-User: eve\r\n").await, 401);
    running.stop().await;
    let running = serve(&text(4_294_967_294)).await.expect("listens");
    assert_eq!(ask(&path, "POST", "/v1/locks/a", ANA).await, 401, "another user's process");
    running.stop().await;
}

#[tokio::test]
async fn a_process_of_this_machine_cannot_name_itself_a_person() {
    let token = config("ci", S3CRET, r#"["view"]"#, "");
    let ground = Ground::with(&format!("{token}{PROXY}addresses = [\"10.0.0.0/8\"]\n")).await;
    assert_eq!(ground.ask_with("GET", "/v1/locks", ANA, "").await.status, 401);
    let trusted = "addresses = [\"127.0.0.0/8\"]\ntrust_this_machine = true\n";
    let ground = Ground::with(&format!("{token}{PROXY}{trusted}")).await;
    assert_eq!(ground.ask_with("GET", "/v1/locks", ANA, "").await.status, 200);
}
