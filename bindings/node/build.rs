//! Sets the linker's arguments for a module that Node loads.

fn main() {
    napi_build::setup();
}
