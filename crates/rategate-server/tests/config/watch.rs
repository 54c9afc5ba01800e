//! Files that change while the service runs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rategate_server::config::{Layers, Loaded, Watch, load, watch};

/// The maximum time for a change to be noticed on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder that is watched.
struct Scene {
    folder: tempfile::TempDir,
    watch: Watch,
    loaded: Receiver<Loaded>,
}

fn rules(names: &[&str]) -> String {
    names.iter().map(|name| format!("[[rule]]\nname = \"{name}\"\nlimit = \"5/s\"\n")).collect()
}

impl Scene {
    /// Watches `path` in a folder that `prepare` has filled.
    fn new(path: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let path = folder.path().join(path);
        let current = load(&path).unwrap();
        let (sender, loaded) = mpsc::channel();
        let apply = move |loaded: Loaded| {
            let is_wanted = loaded.rules.rules.iter().all(|rule| &*rule.name != "unwanted");
            if !is_wanted {
                return Err("unwanted".to_owned());
            }
            sender.send(loaded).map_err(|error| error.to_string())
        };
        let watch = watch(&path, Layers::default(), &current, apply).unwrap();
        // The folders are watched once the first read is complete.
        watch.reload_now();
        Self { folder, watch, loaded }
    }

    fn file(names: &[&str]) -> Self {
        let text = rules(names);
        Self::new("rules.toml", |folder| fs::write(folder.join("rules.toml"), text).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, text: &str) {
        fs::write(self.path("rules.toml"), text).unwrap();
    }

    /// Returns the names of the rules that come into force next.
    fn next(&self) -> Vec<String> {
        let loaded = self.loaded.recv_timeout(PATIENCE).expect("a change is seen");
        loaded.rules.rules.iter().map(|rule| rule.name.to_string()).collect()
    }

    /// Waits for a number of refusals.
    fn refusals(&self, wanted: u64) {
        let since = Instant::now();
        while self.watch.state().failures < wanted {
            assert!(since.elapsed() < PATIENCE, "{:?}", self.watch.state());
            std::thread::yield_now();
        }
        assert!(self.loaded.try_recv().is_err(), "what is refused comes into force");
    }

    fn error(&self) -> String {
        self.watch
            .state()
            .last_error
            .as_ref()
            .map_or_else(String::new, |error| error.message.to_string())
    }
}

#[test]
fn a_file_that_is_written_again_comes_into_force() {
    let scene = Scene::file(&["a"]);
    let before = scene.watch.state();
    scene.write(&rules(&["a", "b"]));
    assert_eq!(scene.next(), ["a", "b"]);
    scene.watch.reload_now();
    let after = scene.watch.state();
    assert_eq!((before.reloads, after.reloads, after.failures), (0, 1, 0));
    assert_ne!(before.hash, after.hash);
    assert!(after.last_error.is_none() && after.loaded_at >= before.loaded_at);
    assert_eq!(after.hash, load(&scene.path("rules.toml")).unwrap().hash);
}

#[test]
fn a_file_that_is_renamed_into_place_comes_into_force() {
    let scene = Scene::file(&["a"]);
    for name in ["b", "c"] {
        fs::write(scene.path("rules.toml.tmp"), rules(&[name])).unwrap();
        fs::rename(scene.path("rules.toml.tmp"), scene.path("rules.toml")).unwrap();
        assert_eq!(scene.next(), [name]);
    }
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported_with_its_position() {
    let scene = Scene::file(&["a"]);
    let before = scene.watch.state();
    scene.write("[[rule]]\nname = \"b\"\nlimit = \"5/fortnight\"\n");
    scene.refusals(1);
    assert!(scene.error().contains("rules.toml:3:9"), "{}", scene.error());
    let state = scene.watch.state();
    assert_eq!((&state.hash, state.reloads), (&before.hash, 0));
    let error = state.last_error.as_ref().and_then(|error| error.error.as_ref()).unwrap();
    assert_eq!((error.problems()[0].line(), error.problems()[0].column()), (Some(3), Some(9)));
    scene.write(&rules(&["c"]));
    assert_eq!(scene.next(), ["c"]);
    scene.watch.reload_now();
    assert_eq!((scene.error().as_str(), scene.watch.state().failures), ("", 1));
}

#[test]
fn a_file_that_is_half_written_changes_nothing() {
    let scene = Scene::file(&["a"]);
    let whole = rules(&["a", "b"]);
    scene.write("");
    scene.refusals(1);
    assert!(scene.error().contains("empty"), "{}", scene.error());
    scene.write(&whole[..whole.len() - 8]);
    scene.refusals(2);
    scene.write(&whole);
    assert_eq!(scene.next(), ["a", "b"]);
}

#[test]
fn a_file_that_is_gone_changes_nothing_and_may_come_back() {
    let scene = Scene::file(&["a"]);
    fs::remove_file(scene.path("rules.toml")).unwrap();
    scene.refusals(1);
    assert!(scene.error().contains("rules.toml: cannot be read"), "{}", scene.error());
    scene.write(&rules(&["a"]));
    scene.watch.reload_now();
    assert_eq!(scene.error(), "");
    assert!(scene.loaded.try_recv().is_err(), "it is the one that is in force");
    scene.write(&rules(&["b"]));
    assert_eq!(scene.next(), ["b"]);
}

#[test]
fn a_configuration_that_its_user_refuses_is_not_in_force() {
    let scene = Scene::file(&["a"]);
    let hash = scene.watch.state().hash.clone();
    scene.write(&rules(&["unwanted"]));
    scene.refusals(1);
    assert_eq!((scene.error().as_str(), &scene.watch.state().hash), ("unwanted", &hash));
    // On request the same text is tried again.
    scene.watch.reload_now();
    assert_eq!(scene.watch.state().failures, 2);
}

#[test]
fn the_same_text_is_no_change() {
    let scene = Scene::file(&["a"]);
    scene.write(&rules(&["a"]));
    scene.watch.reload_now();
    scene.watch.reload_now();
    let state = scene.watch.state();
    assert_eq!((state.reloads, state.failures), (0, 0));
    assert!(scene.loaded.try_recv().is_err());
}

#[test]
fn files_of_a_folder_come_and_go() {
    let scene = Scene::new("conf", |folder| {
        fs::create_dir(folder.join("conf")).unwrap();
        fs::write(folder.join("conf/a.toml"), rules(&["a"])).unwrap();
    });
    fs::write(scene.path("conf/b.toml"), rules(&["b"])).unwrap();
    assert_eq!(scene.next(), ["a", "b"]);
    fs::remove_file(scene.path("conf/a.toml")).unwrap();
    assert_eq!(scene.next(), ["b"]);
    // The folder is replaced by another one.
    fs::create_dir(scene.path("next")).unwrap();
    fs::write(scene.path("next/c.toml"), rules(&["c"])).unwrap();
    fs::rename(scene.path("conf"), scene.path("old")).unwrap();
    fs::rename(scene.path("next"), scene.path("conf")).unwrap();
    assert_eq!(scene.next(), ["c"]);
    scene.watch.reload_now();
    fs::write(scene.path("conf/d.toml"), rules(&["d"])).unwrap();
    assert_eq!(scene.next(), ["c", "d"]);
}

/// A volume of Kubernetes: the file is a link into a folder that is a link, and the latter is
/// swapped.
#[cfg(unix)]
#[test]
fn a_swapped_link_comes_into_force() {
    use std::os::unix::fs::symlink;

    let scene = Scene::new("rules.toml", |folder| {
        fs::create_dir(folder.join("..1")).unwrap();
        fs::write(folder.join("..1/rules.toml"), rules(&["a"])).unwrap();
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/rules.toml", folder.join("rules.toml")).unwrap();
    });
    for (version, name) in [(2, "b"), (3, "c")] {
        let folder = format!("..{version}");
        fs::create_dir(scene.path(&folder)).unwrap();
        fs::write(scene.path(&folder).join("rules.toml"), rules(&[name])).unwrap();
        symlink(&folder, scene.path("..data_tmp")).unwrap();
        fs::rename(scene.path("..data_tmp"), scene.path("..data")).unwrap();
        fs::remove_dir_all(scene.path(&format!("..{}", version - 1))).unwrap();
        assert_eq!(scene.next(), [name]);
    }
}

/// A linked file elsewhere that changes in its own folder.
#[cfg(unix)]
#[test]
fn a_file_behind_a_link_is_followed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("r.toml");
    fs::write(&target, rules(&["a"])).unwrap();
    let scene = Scene::new("rules.toml", |folder| {
        std::os::unix::fs::symlink(&target, folder.join("rules.toml")).unwrap();
    });
    fs::write(&target, rules(&["b"])).unwrap();
    assert_eq!(scene.next(), ["b"]);
}

#[test]
fn a_burst_of_changes_is_read_when_it_is_over() {
    let scene = Scene::file(&["a"]);
    for nth in 0..50 {
        scene.write(&rules(&[&format!("r{nth}")]));
    }
    let mut last = scene.next();
    while last != ["r49"] {
        last = scene.next();
    }
    assert!(scene.watch.state().reloads <= 5, "{}", scene.watch.state().reloads);
}

/// A log that is constantly written in the same folder delays no change: each is noticed after
/// the silence of the file itself, well before the maximum wait of two seconds.
#[test]
fn a_log_in_the_same_folder_holds_nothing_up() {
    let scene = Scene::file(&["a"]);
    let mut log = fs::File::create(scene.path("service.log")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                log.write_all(b"a line\n").unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let took = ["b", "c", "d"].map(|name| {
            let begun = Instant::now();
            fs::write(scene.path("new"), rules(&[name])).unwrap();
            fs::rename(scene.path("new"), scene.path("rules.toml")).unwrap();
            assert_eq!(scene.next(), [name]);
            begun.elapsed()
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(took.iter().all(|took| *took < Duration::from_millis(1_500)), "{took:?}");
    });
}
