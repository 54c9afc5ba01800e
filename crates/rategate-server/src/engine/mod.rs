//! What decides: one request type over tables of keys and a store, whatever protocol a request came by.

mod answer;
mod fault;
mod observer;
mod request;

pub use self::answer::{Answer, Decided, Part, Verdict};
pub use self::fault::Fault;
pub use self::observer::{Observer, Watch};
pub use self::request::{Inline, Item, MOST_ITEMS, Override, Request, Target, Verb};
