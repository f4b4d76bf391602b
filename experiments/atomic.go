package experiments

// WriteAtomic puts a file on disk whole or not at all, for the packages below this one.
func WriteAtomic(path string, data []byte) error { return writeAtomic(path, data) }
