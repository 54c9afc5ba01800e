//! The chapters of the book, each as the documentation of a module.

macro_rules! chapters {
    ($($name:ident: $path:literal,)+) => {
        $(
            #[doc = include_str!($path)]
            mod $name {}
        )+
    };
}

chapters! {
    readme: "../../../README.md",
    getting_started: "../../../docs/guides/getting-started.md",
    choosing: "../../../docs/guides/choosing.md",
    waiting: "../../../docs/guides/waiting.md",
    keys: "../../../docs/guides/keys.md",
    machines: "../../../docs/guides/machines.md",
    load: "../../../docs/guides/load.md",
    testing: "../../../docs/guides/testing.md",
    moving_from_governor: "../../../docs/guides/moving-from-governor.md",
    moving_from_leaky_bucket: "../../../docs/guides/moving-from-leaky-bucket.md",
    moving_from_go: "../../../docs/guides/moving-from-go.md",
    moving_from_bucket4j: "../../../docs/guides/moving-from-bucket4j.md",
}
