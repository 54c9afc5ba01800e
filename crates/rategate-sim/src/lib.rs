//! A world with a virtual clock for rate limiters: callers, arrivals, scenario files, oracle and pictures.
