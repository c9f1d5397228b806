package handlers

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5/middleware"
)

// compress compresses what is read, for those who accept gzip. The size of a compressed answer tells
// of what it holds beside text that the asker chose (BREACH), so that pages of other sites get theirs
// as they are: browsers that say where a request is from, and scripts of the API, get compressed ones.
// Ranges are of the uncompressed text, and so is a payload, whose download may go on with a range.
func compress(next http.Handler) http.Handler {
	compressed := middleware.Compress(1, "text/html", mediaJSON, mediaCSV)(next) // a higher level costs several times as much, and saves a fifth
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted, from := r.Header.Get("Accept-Encoding"), r.Header.Get("Sec-Fetch-Site")
		ours := from == "same-origin" || from == "none" || from == "" && strings.Contains(r.URL.Path, apiPrefix+"/")
		if ours && r.Method == http.MethodGet && strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "q=0") &&
			r.Header.Get("Range") == "" && !strings.HasSuffix(r.URL.Path, "/payload") {
			compressed.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
