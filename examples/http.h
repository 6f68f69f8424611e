/* As much of an HTTP server as an example needs: each connection is one GET of one name, which is
 * the path of the URL without its first slash. What it does not do it refuses: other methods, and %
 * or ? in a URL. */
#ifndef HTTP_H
#define HTTP_H

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define HTTP_NAME_MAX 1024
#define HTTP_PATIENCE_S 30 /* for a peer that neither sends nor reads */
#define HTTP_FIELDS_MAX 100

/* Listens to this machine alone, and prints where. -1: perror says why not. */
static int http_listen(unsigned long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, 64) < 0 || getsockname(listener, (struct sockaddr *)&address, &size) < 0) {
        return -1;
    }
    printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

/* The next connection, for fclose. NULL: there is none now; call again. */
static FILE *http_accept(int listener)
{
    const struct timeval patience = {.tv_sec = HTTP_PATIENCE_S};
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0) {
        FILE *connection = fdopen(fd, "r");
        if (connection != NULL) {
            return connection;
        }
    }
    perror("accept");
    if (fd >= 0) {
        close(fd);
    }
    usleep(100000); /* until others give descriptors or memory back */
    return NULL;
}

/* "200 OK" and the name that the first line of a request asks for; or what to answer instead. */
static const char *http_name_read(const char *line, char *name)
{
    int end = 0;
    if (strchr(line, '\n') == NULL) {
        return "414 URI Too Long";
    }
    if (strncmp(line, "GET ", 4) != 0) {
        return "405 Method Not Allowed\r\nAllow: GET";
    }
    if (sscanf(line, "GET /%1024[^ ?%\r\n]%n", name, &end) == 1 && line[end] > ' ' &&
        strchr("?%", line[end]) == NULL) {
        return "414 URI Too Long";
    }
    return end > 0 && strncmp(line + end, " HTTP/1.", 8) == 0 ? "200 OK" : "400 Bad Request";
}

/* Reads a request. Like http_name_read; NULL: the peer has gone, or sends no request. */
static const char *http_read(FILE *connection, char name[HTTP_NAME_MAX + 1])
{
    char line[2048], field[2048];
    if (fgets(line, sizeof(line), connection) == NULL) {
        return NULL;
    }
    for (int i = 0; i < HTTP_FIELDS_MAX && fgets(field, sizeof(field), connection) != NULL; i++) {
        if (strcspn(field, "\r\n") == 0) {
            return http_name_read(line, name);
        }
    }
    return NULL;
}

static void http_send(int fd, const char *data, uint64_t size)
{
    for (ssize_t sent; size > 0; data += sent, size -= (uint64_t)sent) {
        if ((sent = send(fd, data, size, MSG_NOSIGNAL)) <= 0) {
            return; /* the peer has gone, or does not read */
        }
    }
}

/* `fields`: more of them, each with its \r\n. */
static void http_answer(FILE *connection, const char *answer, const char *fields, const char *data,
                        uint64_t size)
{
    char head[512];
    int length = snprintf(head, sizeof(head),
                          "HTTP/1.1 %s\r\n%sContent-Length: %llu\r\nConnection: close\r\n\r\n",
                          answer, fields, (unsigned long long)size);
    http_send(fileno(connection), head, (uint64_t)length);
    http_send(fileno(connection), data, size);
}

#endif
