package handlers

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openapi []byte

// apiDocument answers with the document, whose server is where this reader's
// requests reach the API.
func (s *server) apiDocument(w http.ResponseWriter, r *http.Request) error {
	at := []byte(`"url": "` + s.linksOf(r).API().Base() + `"`) // nothing in a base path or a prefix has to be escaped
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bytes.Replace(openapi, []byte(`"url": "`+apiPrefix+`"`), at, 1)) // the client may have gone; nobody is left to tell
	return nil
}
