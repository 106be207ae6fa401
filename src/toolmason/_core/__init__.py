"""Engine: everything between a function and the result of its call. Private; `toolmason` exports its public part."""
