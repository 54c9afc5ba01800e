//! A headless browser, controlled by the DevTools protocol. It speaks over two pipes, so that no
//! port is open and no client library is needed: messages are JSON, with a zero byte after each.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The maximum time of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// The errors of the page, and of the browser about the page.
    pub(crate) complaints: Vec<String>,
    session: Option<String>,
    next: u64,
    _profile: tempfile::TempDir,
}

/// Returns the program, if it is installed: by `RATEGATE_CHROMIUM`, or by one of its usual names.
fn program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("RATEGATE_CHROMIUM") {
        return Some(given.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let directories = std::env::split_paths(&path).collect::<Vec<_>>();
    names
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .find(|file| file.is_file())
}

impl Browser {
    /// Starts a browser in which names that end with `.example` are this machine.
    pub(crate) fn start() -> Self {
        let program = program().expect(
            "no chromium: `cargo xtask servers` installs it (apt-get install chromium, as root)",
        );
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The browser reads from its file 3 and writes to its file 4.
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#]).arg(program);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command.args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
        ]);
        command.args(["--hide-scrollbars", "--remote-debugging-pipe"]);
        command.arg("--host-resolver-rules=MAP *.example 127.0.0.1");
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(read) = serde_json::from_slice(&message) else { return };
                if sender.send(read).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            child,
            input,
            messages,
            complaints: Vec::new(),
            session: None,
            next: 0,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Audits"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method, and waits for the reply.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(&[message.to_string().as_bytes(), &[0]].concat()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("the browser does not answer {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended at {method}"),
            };
            if message["id"] == json!(self.next) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.record_message(&message);
        }
    }

    /// Records as an error everything that Chromium reports about a page.
    fn record_message(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        let is_complaint = match method {
            "Runtime.exceptionThrown" | "Audits.issueAdded" => true,
            "Runtime.consoleAPICalled" => {
                ["error", "warning", "assert"].iter().any(|kind| params["type"] == *kind)
            }
            "Log.entryAdded" => {
                ["error", "warning"].iter().any(|level| params["entry"]["level"] == *level)
            }
            _ => false,
        };
        if is_complaint {
            self.complaints.push(format!("{method}: {params}"));
        }
    }

    /// Sets the size of the screen in pixels, and its colour scheme.
    pub(crate) fn screen(&mut self, width: u32, height: u32, scheme: &str) {
        let screen = json!({
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Evaluates an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let request =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &request);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let since = Instant::now();
        // A missing element counts as not true yet.
        let request = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        while self.eval(&request) != json!(true) {
            assert!(since.elapsed() < PATIENCE, "never: {expression}; {:?}", self.complaints);
            thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            "Home" => (36, ""),
            "End" => (35, ""),
            " " => (32, " "),
            other => panic!("unknown key {other}"),
        };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let key = |kind: &str| {
            json!({
                "type": kind,
                "key": key,
                "code": key,
                "windowsVirtualKeyCode": code,
                "text": text,
            })
        };
        self.call("Input.dispatchKeyEvent", &key(down));
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key("x")["key"], "windowsVirtualKeyCode": code }),
        );
    }

    /// Types into the focused element.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Saves a picture of the whole page, if `RATEGATE_SCREENSHOTS` names a folder.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("RATEGATE_SCREENSHOTS") else { return };
        let size = self
            .eval("[document.documentElement.clientWidth, document.documentElement.scrollHeight]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let request = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", &request);
        let picture = decoded(answer["data"].as_str().unwrap());
        std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), picture).unwrap();
    }
}

/// Decodes base64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<usize> = text.chars().filter_map(|digit| DIGITS.find(digit)).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | four.get(at).copied().unwrap_or(0));
        [bits >> 16, bits >> 8, bits].into_iter().take(four.len() - 1)
    });
    bytes.map(|byte| u8::try_from(byte & 255).unwrap()).collect()
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
