//! Slots: exclusive state in a registry that `clear` reaches.

use crate::kernels::{Plans, Scratch, clears, create, fill_slot, must_end};
use kiln_resource_cache::{CacheRegistry, CacheRegistrySlot};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

type Registry = CacheRegistry;

#[test]
fn a_slot_is_filled_once_and_keeps_its_state() {
    let registry = Registry::new();
    let mut inits = 0;
    for expected in 0..3 {
        let mut slot = registry.slot_mut(|| {
            inits += 1;
            Scratch::<1>::default()
        });
        assert_eq!(slot.bytes, expected);
        slot.bytes += 1;
    }
    assert_eq!(inits, 1);
    assert_eq!(*registry.slot_mut(Scratch::<2>::default), Scratch::default(), "another type is another slot");
}

#[test]
fn clear_reaches_every_slot_and_slots_stay_usable() {
    let registry = Registry::new();
    fill_slot::<1>(&registry, 10);
    fill_slot::<2>(&registry, 20);
    registry.clear();
    assert_eq!(*registry.slot_mut(Scratch::<1>::default), Scratch { bytes: 0, clears: 1 });
    assert_eq!(*registry.slot_mut(Scratch::<2>::default), Scratch { bytes: 0, clears: 1 });
    fill_slot::<1>(&registry, 5);
    assert_eq!(registry.bytes(), 5);
}

#[test]
fn clear_slot_clears_one_slot_and_returns_whether_it_exists() {
    let registry = Registry::new();
    assert!(!registry.clear_slot::<Scratch<1>>());
    fill_slot::<1>(&registry, 10);
    fill_slot::<2>(&registry, 20);
    assert!(registry.clear_slot::<Scratch<1>>());
    assert!(registry.clear_slot::<Scratch<1>>(), "a slot that is empty is still there");
    assert_eq!((clears::<1>(&registry), clears::<2>(&registry)), (2, 0));
    assert_eq!(registry.bytes(), 20);
}

#[test]
fn clear_by_the_owner_of_a_slot_takes_effect_on_release() {
    must_end(|| {
        type Clear = fn(&Registry);
        let ways: [Clear; 3] = [
            Registry::clear,
            |registry| assert!(registry.clear_slot::<Scratch<1>>()),
            |registry| assert_eq!(registry.trim(0).slots_deferred, 1),
        ];
        for clear in ways {
            let registry = Registry::new();
            fill_slot::<1>(&registry, 10);
            let mut slot = registry.slot_mut(Scratch::<1>::default);
            clear(&registry);
            assert_eq!(*slot, Scratch { bytes: 10, clears: 0 }, "a slot in use is left alone");
            slot.bytes = 30;
            drop(slot);
            assert_eq!(registry.bytes(), 0);
            assert_eq!(*registry.slot_mut(Scratch::<1>::default), Scratch { bytes: 0, clears: 1 });
            assert_eq!(clears::<1>(&registry), 1, "once, not at every use from now on");
        }
    });
}

#[test]
fn clear_does_not_wait_for_a_slot_that_another_thread_uses() {
    let registry = Registry::new();
    let (held, wait_held) = mpsc::channel();
    let (cleared, wait_cleared) = mpsc::channel();
    std::thread::scope(|scope| {
        let registry = &registry;
        scope.spawn(move || {
            let mut slot = registry.slot_mut(Scratch::<1>::default);
            slot.bytes = 10;
            held.send(()).unwrap();
            wait_cleared.recv().unwrap();
            assert_eq!(*slot, Scratch { bytes: 10, clears: 0 });
        });
        wait_held.recv().unwrap();
        registry.clear();
        cleared.send(()).unwrap();
    });
    assert_eq!(*registry.slot_mut(Scratch::<1>::default), Scratch { bytes: 0, clears: 1 });
}

#[test]
fn asking_twice_on_one_thread_panics_with_the_slots_name_and_breaks_nothing() {
    must_end(|| {
        let registry = Registry::new();
        let mut first = registry.slot_mut(Scratch::<1>::default);
        let panic = catch_unwind(AssertUnwindSafe(|| drop(registry.slot_mut(Scratch::<1>::default)))).unwrap_err();
        insta::assert_snapshot!(
            panic.downcast_ref::<String>().unwrap(),
            @"slot `registry::kernels::Scratch<1>`: this thread holds it already; drop the first `SlotMut` before calling `slot_mut` again"
        );
        first.bytes = 10;
        fill_slot::<2>(&registry, 5);
        create::<Plans>(&registry, &[('a', 1)]);
        drop(first);
        assert_eq!(registry.slot_mut(Scratch::<1>::default).bytes, 10);
        assert_eq!(registry.bytes(), 16);
    });
}

#[test]
fn a_slot_has_one_user_at_a_time() {
    let registry = Registry::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut slot = registry.slot_mut(Scratch::<1>::default);
                    let seen = slot.bytes;
                    std::thread::yield_now();
                    slot.bytes = seen + 1;
                }
            });
        }
    });
    assert_eq!(registry.slot_mut(Scratch::<1>::default).bytes, 2000);
    assert_eq!(registry.bytes(), 2000);
}

#[test]
fn a_slot_whose_first_fill_panics_is_filled_by_the_next_use() {
    let registry = Registry::new();
    let fill = AssertUnwindSafe(|| drop(registry.slot_mut(|| -> Scratch<1> { panic!("no memory") })));
    catch_unwind(fill).unwrap_err();
    assert_eq!(registry.bytes(), 0);
    registry.clear();
    fill_slot::<1>(&registry, 7);
    assert_eq!(*registry.slot_mut(Scratch::<1>::default), Scratch { bytes: 7, clears: 0 });
}

#[test]
fn a_user_that_panics_leaves_the_slot_usable_and_accounted() {
    let registry = Registry::new();
    let used = AssertUnwindSafe(|| {
        let mut slot = registry.slot_mut(Scratch::<1>::default);
        slot.bytes = 12;
        panic!("half way");
    });
    catch_unwind(used).unwrap_err();
    assert_eq!(registry.bytes(), 12);
    assert_eq!(registry.slot_mut(Scratch::<1>::default).bytes, 12);
}

#[test]
fn the_bytes_of_a_slot_are_those_after_its_last_use() {
    let registry = Registry::new();
    let slot_bytes = || registry.report().slots.iter().map(|slot| slot.bytes).collect::<Vec<_>>();
    let mut slot = registry.slot_mut(Scratch::<1>::default);
    slot.bytes = 10;
    assert_eq!((slot_bytes(), registry.bytes()), (vec![0], 0));
    drop(slot);
    assert_eq!((slot_bytes(), registry.bytes()), (vec![10], 10));
    fill_slot::<1>(&registry, 4);
    assert_eq!((slot_bytes(), registry.bytes()), (vec![4], 4), "a slot that shrinks gives its bytes back");
}

#[test]
fn a_slot_without_a_size_counts_as_zero_and_is_cleared() {
    struct Silent(u32);

    impl CacheRegistrySlot for Silent {
        fn clear_slot(&mut self) {
            self.0 = 0;
        }
    }

    let registry = Registry::new();
    registry.slot_mut(|| Silent(1)).0 = 9;
    assert_eq!(registry.bytes(), 0);
    registry.clear();
    assert_eq!(registry.slot_mut(|| Silent(1)).0, 0);
}
