/* A module with a type of its own, for keys that hold something that only another
 * module knows: OTHER.SET key.
 *
 * What it needs of the server's API is declared here; the header of the API is not
 * installed with a server.
 */
#include <stddef.h>
#include <stdint.h>

typedef struct Ctx Ctx;
typedef struct Str Str;
typedef struct Key Key;
typedef struct Type Type;
typedef struct Io Io;
typedef int Handler(Ctx *ctx, Str **argv, int argc);

struct methods {
    uint64_t version;
    void *(*rdb_load)(Io *rdb, int encoding);
    void (*rdb_save)(Io *rdb, void *value);
    void (*aof_rewrite)(Io *aof, Str *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(void *digest, void *value);
    void (*free)(void *value);
};

enum { OK = 0, ERR = 1, API_VERSION = 1, WRITE = 2 };

static void (*set_module_attribs)(Ctx *ctx, const char *name, int version, int api);
static Type *(*create_data_type)(Ctx *ctx, const char *name, int encoding, struct methods *methods);
static int (*create_command)(Ctx *ctx, const char *name, Handler *handler, const char *flags, int first,
                             int last, int step);
static Key *(*open_key)(Ctx *ctx, Str *name, int mode);
static void (*close_key)(Key *key);
static int (*module_type_set_value)(Key *key, Type *type, void *value);
static int (*reply_with_simple_string)(Ctx *ctx, const char *text);

static Type *type;
/* All keys share one value: it is there to be pointed at. */
static int value;

static void *load(Io *rdb, int encoding) {
    (void)rdb, (void)encoding;
    return &value;
}

static void save(Io *rdb, void *saved) { (void)rdb, (void)saved; }

static void rewrite(Io *aof, Str *key, void *saved) { (void)aof, (void)key, (void)saved; }

static void release(void *released) { (void)released; }

static int other_set(Ctx *ctx, Str **argv, int argc) {
    if (argc != 2) return ERR;
    Key *key = open_key(ctx, argv[1], WRITE);
    module_type_set_value(key, type, &value);
    close_key(key);
    return reply_with_simple_string(ctx, "OK");
}

int RedisModule_OnLoad(Ctx *ctx, Str **argv, int argc) {
    (void)argv, (void)argc;
    /* The context begins with the function that gives the others. */
    int (*get)(const char *name, void *function) = *(int (**)(const char *, void *))ctx;
    if (get("RedisModule_SetModuleAttribs", &set_module_attribs) != OK ||
        get("RedisModule_CreateDataType", &create_data_type) != OK ||
        get("RedisModule_CreateCommand", &create_command) != OK ||
        get("RedisModule_OpenKey", &open_key) != OK || get("RedisModule_CloseKey", &close_key) != OK ||
        get("RedisModule_ModuleTypeSetValue", &module_type_set_value) != OK ||
        get("RedisModule_ReplyWithSimpleString", &reply_with_simple_string) != OK)
        return ERR;
    set_module_attribs(ctx, "othertype", 1, API_VERSION);
    struct methods methods = {
        .version = 1, .rdb_load = load, .rdb_save = save, .aof_rewrite = rewrite, .free = release};
    type = create_data_type(ctx, "othertype", 0, &methods);
    if (type == NULL) return ERR;
    return create_command(ctx, "other.set", other_set, "write", 1, 1, 1);
}
