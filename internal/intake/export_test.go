package intake

// OnRead calls do after each read of the worker's first source, before anything is journalled.
func (w *Worker) OnRead(do func()) { w.drains[0].onRead = do }
