package intake

import "time"

// Kept is how long events of moved rows are kept.
func (s Source) Kept() time.Duration { return s.keep }

// OnRead calls do after each read of the worker's first source, before anything is journalled.
func (w *Worker) OnRead(do func()) { w.drains[0].onRead = do }
