// Echo and HTTP in Go's standard library: bench-go echo|http HOST:PORT|unix:PATH
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func listen(bind string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(bind, "unix:"); ok {
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", bind)
}

func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 102400)
	for {
		count, err := connection.Read(buffer)
		if count > 0 {
			if _, err := connection.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func serveHTTP(listener net.Listener) error {
	bodies := map[string][]byte{}
	for _, size := range []int{1024, 10240, 102400} {
		bodies["/"+strconv.Itoa(size)] = []byte(strings.Repeat("x", size))
	}
	hello := []byte("hello world\n")
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			body = hello
		}
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}))
}

func main() {
	listener, err := listen(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Args[1] == "http" {
		fmt.Fprintln(os.Stderr, serveHTTP(listener))
		os.Exit(1)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go echo(connection)
	}
}
