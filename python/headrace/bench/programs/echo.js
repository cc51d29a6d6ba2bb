// Echo and HTTP on Node.js: node echo.js echo|http HOST:PORT|unix:PATH
'use strict';
const net = require('net');
const http = require('http');
const [, , what, bind] = process.argv;

const bodies = {};
for (const size of [1024, 10240, 102400]) bodies[`/${size}`] = Buffer.alloc(size, 'x');
const hello = Buffer.from('hello world\n');

const servers = {
  echo: () => net.createServer({ noDelay: true }, (socket) => {
    socket.on('data', (data) => socket.write(data));
    socket.on('error', () => socket.destroy());
  }),
  http: () => http.createServer((request, response) => {
    const body = bodies[request.url] || hello;
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': body.length });
    response.end(body);
  }),
};

const server = servers[what]();
if (bind.startsWith('unix:')) {
  server.listen({ path: bind.slice(5), backlog: 1024 });
} else {
  const cut = bind.lastIndexOf(':');
  server.listen({ host: bind.slice(0, cut), port: Number(bind.slice(cut + 1)), backlog: 1024 });
}
