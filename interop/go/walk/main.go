// Holds a lock of a Holdline server with net/http: session, lock, renew, fence, release.
//
// Usage: walk URL NAME
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
)

type answer struct {
	Session      string `json:"session"`
	FencingToken uint64 `json:"fencing_token"`
	Leases       []struct {
		State string `json:"state"`
	} `json:"leases"`
}

func call(method, address string, body any) answer {
	text, err := json.Marshal(body)
	if err != nil {
		log.Fatal(err)
	}
	request, err := http.NewRequest(method, address, bytes.NewReader(text))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		log.Fatalf("%s %s: %s %s", method, address, response.Status, text)
	}
	var read answer
	if len(text) > 0 {
		if err := json.Unmarshal(text, &read); err != nil {
			log.Fatal(err)
		}
	}
	return read
}

// The resource: it accepts a write only if no larger token was seen before.
var largest uint64

func write(token uint64) {
	if token < largest {
		fmt.Println("refused token", token)
		return
	}
	largest = token
	fmt.Println("wrote with a token")
}

func main() {
	server, name := os.Args[1], os.Args[2]
	session := call("POST", server+"/v1/sessions", map[string]any{"duration_ms": 30000}).Session
	path := server + "/v1/locks/" + url.PathEscape(name)
	lease := call("POST", path, map[string]any{"session": session, "wait_ms": 10000})
	fmt.Println("locked", name)
	beat := call("POST", server+"/v1/sessions/"+session+"/heartbeat", struct{}{})
	fmt.Println(beat.Leases[0].State)
	write(lease.FencingToken)
	write(0)
	call("DELETE", server+"/v1/sessions/"+session, struct{}{})
	fmt.Println("released", name)
}
