//! A deny list that is replaced while a reader uses it.

use rategate::deny::DenyList;

use crate::world::{explore, start};

/// The second of two replacements writes where a reader of the first list may still read.
#[test]
fn quick_a_reader_sees_one_list_after_the_other() {
    explore(|_| {
        let list: DenyList<u32> = DenyList::new(1);
        let publish = |list: &DenyList<u32>, number: u32, until_ns| {
            list.replace([(list.id(&number), until_ns)]);
        };
        publish(&list, 7, 1);
        let writer = start({
            let list = list.clone();
            move || {
                publish(&list, 7, 2);
                publish(&list, 7, 3);
            }
        });
        let seen = [(); 2].map(|()| list.until_ns(&7).map_or(0, u64::from));
        assert!(matches!(seen, [1..=3, 1..=3]), "{seen:?}");
        assert!(seen[0] <= seen[1], "{seen:?}");
        writer.join().unwrap();
        assert_eq!(list.until_ns(&7).map(u64::from), Some(3));
    });
}
