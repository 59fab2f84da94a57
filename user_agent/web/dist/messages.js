import{a}from"./chunk-ZOLWF6VN.js";export{a as messages};
