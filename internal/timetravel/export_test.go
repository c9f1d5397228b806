package timetravel

// Kept is the number of campaigns whose changes are kept.
func (t *Travel) Kept() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.kept)
}

// Replays is the number of replays begun.
func (t *Travel) Replays() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opened
}
