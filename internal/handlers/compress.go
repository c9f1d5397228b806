package handlers

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compress compresses long answers to those who accept gzip. The size of a compressed answer tells
// of what it holds beside text that the asker chose (BREACH), so that pages of other sites get theirs
// as they are: browsers that say where a request is from, and scripts of the API, get compressed ones.
// Ranges are of the uncompressed text, and so is a payload, whose download may go on with a range.
func compress(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.EnableZstd(false),
		gzhttp.CompressionLevel(1), // a higher level costs several times as much, and saves a fifth
		gzhttp.MinSize(32<<10),     // what is shorter arrives as soon, and costs less
		gzhttp.ContentTypes([]string{"text/html", mediaJSON, mediaCSV}))
	if err != nil {
		panic(err) // an option above is wrong
	}
	compressed := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := r.Header.Get("Sec-Fetch-Site")
		ours := from == "same-origin" || from == "none" || from == "" && strings.Contains(r.URL.Path, apiPrefix+"/")
		if ours && r.Method == http.MethodGet &&
			r.Header.Get("Range") == "" && !strings.HasSuffix(r.URL.Path, "/payload") {
			compressed.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
