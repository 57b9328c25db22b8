//! A test program of its own, because it closes its standard descriptors.

use ringfence_sys::file;
use std::{fs::File, os::fd::AsRawFd};

#[test]
fn closed_standard_descriptors_are_filled_and_open_ones_stay() {
    let (input, error) = (file::inherited(0).unwrap(), file::inherited(2).unwrap());
    drop((input, error));
    let in_the_way = File::open("/dev/null").unwrap();
    assert_eq!(
        in_the_way.as_raw_fd(),
        0,
        "the control: it gets a standard number"
    );
    drop(in_the_way);

    file::fill_standard_descriptors().unwrap();
    file::fill_standard_descriptors().unwrap();
    let after = File::open("/dev/null").unwrap();
    assert!(after.as_raw_fd() > 2, "{}", after.as_raw_fd());
    for (number, is_null) in [(0, true), (2, true), (1, false)] {
        let leads_to = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert!(!is_null || leads_to.ends_with("null"), "{number}: {leads_to:?}");
    }
}
