package handlers

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openapi []byte

// apiDocument answers with the OpenAPI document. Its server is the address at which this reader
// reaches the API.
func (s *server) apiDocument(w http.ResponseWriter, r *http.Request) error {
	at := []byte(`"url": "` + s.linksOf(r).API().Base() + `"`) // base paths and prefixes need no escaping
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bytes.Replace(openapi, []byte(`"url": "`+apiPrefix+`"`), at, 1)) // the client may have disconnected
	return nil
}
