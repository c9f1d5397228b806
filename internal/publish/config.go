package publish

// settings are those of one kind of destination.
type settings struct{}
