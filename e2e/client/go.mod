// A program that talks to the API through the client that oapi-codegen makes of
// its document. It is a module of its own, since nothing else needs what that
// client needs. Its package api is generated where the test builds it.
module github.com/outboxweb/outboxweb/e2e/client

go 1.26.0

require github.com/oapi-codegen/runtime v1.8.0

require (
	github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
)
